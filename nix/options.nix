# The options of services.cloister, and what each may be. What options may be together is
# judged in module.nix and tenants.nix.
{ lib, pkgs, ours }:

let
  inherit (lib) mkEnableOption mkOption types;

  option =
    type: default: description:
    mkOption { inherit type default description; };
  required = type: description: mkOption { inherit type description; };
  package = default: defaultText: description:
    mkOption {
      type = types.package;
      inherit default description;
      defaultText = lib.literalExpression defaultText;
    };

  limits = import ./limits.nix;
  limit =
    name:
    let
      l = limits.${name};
    in
    option (types.nullOr (types.ints.between l.min l.max)) null
      "${l.text} null: the daemon's default, ${toString l.default}.";

  model = types.submodule {
    options = {
      label = required types.str "For people.";
      api = required (types.enum [
        "chat-completions"
        "responses"
        "messages"
      ]) "The wire format.";
      baseUrl = required types.str "Such as \"https://api.example/v1\".";
      model = required types.str "What the provider calls it.";
      apiKeyFile = option (types.nullOr types.str) null ''
        A file that holds the key, read as root, like the files of tokens. A string: a path would
        be copied into the Nix store.
      '';
      contextWindow = required (types.ints.between 1 100000000) "Tokens.";
      maxOutputTokens = required (types.ints.between 1 100000000) "Tokens.";
      reasoning = option (types.nullOr (
        types.submodule {
          options = {
            efforts = option (types.listOf (types.enum [
              "none"
              "low"
              "medium"
              "high"
              "xhigh"
              "max"
            ])) [ ] "Levels that it takes by name.";
            budget = option types.bool false "Of messages: it takes a number of tokens instead.";
            summaries = option types.bool false "It is asked for summaries that people can read.";
          };
        }
      )) null "null: it does not reason, or is not asked to.";
      images = option (types.nullOr types.bool) null "Whether it can be shown images; null: no.";
      prices =
        option
          (types.nullOr (
            types.submodule {
              options = {
                input = required types.number "Per million tokens.";
                output = required types.number "The same.";
                cached = option (types.nullOr types.number) null "The same; null: not known.";
              };
            }
          ))
          null
          "null: not known.";
      headers = option (types.attrsOf types.str) { } "Up to 16 more; no keys.";
      idleSeconds =
        option (types.nullOr (types.ints.between 1 3600)) null
          "How long nothing of an answer may come; null: 300.";
    };
  };

  mcpServer = types.submodule {
    options = {
      url = required types.str "Such as \"https://mcp.example/mcp\".";
      tokenFile = option (types.nullOr types.str) null ''
        A file that holds the token, read as root, like the files of tenants' tokens. A string: a
        path would be copied into the Nix store.
      '';
      tokenHeader = option (types.nullOr types.str) null ''
        The header that carries the token. null: Authorization, with "Bearer" before it.
      '';
      timeoutSeconds = option (types.nullOr (types.ints.between 1 3600)) null ''
        How long a call may take. null: 60.
      '';
    };
  };

  allowed = types.submodule {
    options = {
      cidr = required types.str "An IPv4 network such as \"198.51.100.0/24\".";
      ports =
        option (types.nullOr (types.listOf (types.either types.int types.str))) null
          "Ports, and ranges such as \"8000-8100\"; null: all of them.";
    };
  };

  tenant = types.submodule (
    { name, ... }:
    {
      options = {
        id = required types.str ''
          A UUID, as uuidgen prints it. The tenant's database and history belong to the id, not
          to the name, so it stays the same for as long as the tenant lives.
        '';
        workspace = mkOption {
          type = types.str;
          default = "/srv/cloister/${name}";
          defaultText = lib.literalExpression "\"/srv/cloister/<name>\"";
          description = ''
            The directory that the sandbox sees as /workspace. It is made when it is missing,
            and never removed.
          '';
        };
        tokenFiles = option (types.attrsOf types.str) { } ''
          Names of the tenant's credentials, each with a file that holds its bearer token, at
          least 32 printable characters, or sha256: and its hash. The file is read as root, so that whatever puts secrets
          in place may own it; the directories above it must be root's and closed to other
          writers. A string: a path would be copied into the Nix store.
        '';
        tokenHashes = option (types.attrsOf types.str) { } ''
          The same without a secret: the SHA-256 of each token, 64 hex digits, as "cloisterd token
          new" prints it beside a new token. Everybody may read them: the store may, and so may
          a repository.
        '';
        egress = {
          mode = option (types.enum [ "public" "allow" "none" ]) "public" ''
            What the sandbox may reach. public: all but what is private, special or this
            machine's. allow: what `allow` lists. none: nothing.
          '';
          allow = option (types.listOf allowed) [ ] "With mode allow: what may be reached.";
          dns =
            option (types.nullOr (types.either (types.enum [ "off" "host" ]) (types.listOf types.str))) null
              ''
                off: no names. host: this machine's resolvers. A list: these 1 to 3 IPv4 addresses.
                null: off.
              '';
        };
        models = option (types.nullOr (types.listOf types.str)) null ''
          The ids of the models that the tenant may use, of those that are declared; an empty
          list: none. null: all.
        '';
        mcp = option (types.listOf types.str) [ ] ''
          The ids of the MCP servers whose tools the tenant has, of those that are declared.
        '';
        approvals = option (types.nullOr (types.enum [ "sandbox" "ask" "plan" ])) null ''
          Who is asked before calls of the model that write or execute, in sessions that do not
          say, and at least in all others: nobody ("sandbox"), a person ("ask"), or the session
          is opened planning ("plan"). null: "sandbox".
        '';
        limits = {
          cpus = option (types.nullOr types.number) null "0.1 to 64; null: 2.";
          memoryMiB = option (types.nullOr (types.ints.between 256 1048576)) null "null: 2,048.";
          processes = option (types.nullOr (types.ints.between 16 32768)) null "null: 512.";
        };
        diskQuota = option (types.nullOr (types.strMatching "[1-9][0-9]{0,5}[MGT]")) null ''
          How much the workspace may hold, such as "20G", and with it how many files: one for
          every 16 KiB and 1,024 more. Needs a file system that counts projects (ext4 or xfs,
          mounted with prjquota); on another one the service does not start. The tenant's home
          directory, in the state directory, is bounded likewise where that counts, too: together
          with the workspace where both are on one file system, by itself elsewhere. null: as much
          as the file system has.
        '';
      };
    }
  );
in
{
  enable = mkEnableOption "Cloister, sandboxes for agents behind an HTTP API";

  package = package ours.cloisterd "cloister.cloisterd" "The daemon.";
  runnerPackage = package ours.cloister-runner "cloister.cloister-runner" ''
    What starts one sandbox. It is run from its own path in the store, which belongs to root,
    is named by the unit of each generation, and is collected when no generation and no
    process uses it any more.
  '';
  guestPackage = package ours.cloister-guest "cloister.cloister-guest" ''
    The first process of a sandbox, static.
  '';
  rootfs = package ours.rootfs "cloister.rootfs" "The root filesystem of the sandboxes.";
  runscPackage = package ours.runsc "cloister.runsc" "gVisor: the program bin/runsc, static.";
  slirp4netnsPackage = package pkgs.slirp4netns "pkgs.slirp4netns" ''
    The network of the sandboxes.
  '';

  user = option types.str "cloister" ''
    The user that the service runs as. It is made, and nothing else may be or use it.
  '';
  group = option types.str "cloister" "The same, as a group.";
  stateDirectory = option types.str "cloister" ''
    Below /var/lib: the database, and what tenants keep in their home directories.
  '';
  environmentFiles = option (types.listOf types.str) [ ] ''
    Files with lines NAME=value for the daemon's environment. They are read as root when the
    service starts. Strings: a path would be copied into the Nix store.
  '';

  tenants = option (types.attrsOf tenant) { } "The tenants, by name.";
  tenantRegistryFile = option (types.nullOr types.str) null ''
    A registry that something else makes, instead of `tenants`. Whatever makes it also makes
    the workspaces and the token files, and has the service reload.
  '';
  models = option (types.attrsOf model) { } ''
    Models of providers, by the id that tenants call them (docs/models.md). With none there is
    the built-in model demo alone. A change restarts the service.
  '';
  mcp = option (types.attrsOf mcpServer) { } ''
    MCP servers, by the id that is part of the names of their tools (docs/mcp.md). A tenant has
    those that its own `mcp` lists.
  '';
  modelsFile = option (types.nullOr types.str) null ''
    A file of models that something else makes, with the files of its keys, instead of
    `models`. It takes effect with the next start.
  '';
  workspaceRoots = option (types.listOf types.str) [ "/srv/cloister" ] ''
    The only directories, besides the state directory, in which the service can write.
  '';

  host = option types.str "127.0.0.1" "The address to listen on.";
  port = option types.port 4096 "The port to listen on.";
  allowRemote = option types.bool false ''
    Let `host` be an address that other machines reach. Tokens then travel as they are, unless
    something in between encrypts them.
  '';
  allowHttpRepositories = option types.bool false ''
    Let sessions begin with a repository at http://, where anybody on the way reads credentials
    and changes code.
  '';
  corsOrigins = option (types.listOf types.str) [ ] ''
    Whose pages may use the API, such as "https://app.example".
  '';
  trustedProxies = option (types.listOf types.str) [ ] ''
    Addresses of proxies that tell in X-Forwarded-For whom they ask for, so that wrong tokens are
    counted for that one and not for the proxy. `reverseProxy` names its own.
  '';
  metricsTokenFile = option (types.nullOr types.str) null ''
    A file with the bearer token for GET /metrics, or with sha256: and its hash; read as root,
    like the files of tokens, when the service starts. null: there is no /metrics.
  '';
  hostAddresses = option (types.listOf types.str) [ ] ''
    IPv4 networks that no sandbox may reach, besides this machine's own addresses.
  '';
  logFormat = option (types.enum [ "text" "json" "journal" ]) "journal" ''
    The form of what is written to the journal. journal: with the priorities that journalctl -p
    selects by.
  '';
  logLevel = option (types.enum [ "error" "warn" "info" "debug" ]) "info" ''
    The most detailed messages that are written to the journal.
  '';

  limits = builtins.mapAttrs (name: _: limit name) limits;
  unit = {
    memoryMax = option (types.strMatching "[1-9][0-9]*[MGT]|[1-9][0-9]?%|100%") "80%" ''
      Of daemon, database and all sandboxes together: "12G", or a share of the machine's.
    '';
    tasksMax = option (types.ints.between 2048 4194304) 32768 "The same for tasks.";
    openFiles = option (types.ints.between 4096 1048576) 65536 "The same for each process, files.";
  };

  database = {
    majorVersion = option (types.nullOr (types.ints.between 15 99)) null ''
      The version of PostgreSQL that the database was made by; null: 17. It stays as it is when
      NixOS is upgraded: another version cannot read the files, and an upgrade of them has no way
      back.
    '';
    package = mkOption {
      type = types.nullOr types.package;
      default = null;
      description = "PostgreSQL; null: that of nixpkgs with the declared major version.";
    };
    urlFile = option (types.nullOr types.str) null ''
      A server of your own, instead of a database that the service makes and runs: a file with one
      line, postgresql://cloister_owner:PASSWORD@HOST/cloister or, for a server of this machine,
      postgresql://cloister_owner:PASSWORD@/cloister?host=/run/postgresql. It is read as root, like
      the files of tokens, when the service starts. A string: a path would be copied into the Nix
      store. What the server needs first is in docs/operate-nixos.md, "A database server of your
      own". null: the service's own database.
    '';
    socketDirectory = option (types.nullOr types.str) null ''
      With urlFile, where the URL names the directory of a socket: that directory, of which the
      unit would see nothing otherwise.
    '';
  };

  reverseProxy = {
    enable = mkEnableOption "nginx in front of the API";
    serverName = option types.str "" ''
      The virtual host. Certificates are declared there, in
      `services.nginx.virtualHosts.<serverName>`: enableACME, forceSSL.
    '';
  };
}
