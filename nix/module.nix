# services.cloister: the daemon and its tenants, declared.
#
# The unit is that of service.nix and says nothing about tenants. They are in two generated
# files, copied to /etc because the daemon follows no link: the registry, which it reads, and
# a list, from which a step with root's powers makes directories, quotas and copies of
# secrets. A change of either reloads the service; a change of the unit, which names programs
# by their path in the store, or of the models restarts it.
{
  config,
  lib,
  pkgs,
  ...
}:

let
  cfg = config.services.cloister;
  ours = import ./packages.nix { inherit pkgs lib; };

  inherit (import ./paths.nix)
    unitPathFault
    inStore
    inside
    isAddress
    isLoopback
    networkFault
    ;

  stateDirectory = "/var/lib/${cfg.stateDirectory}";
  # Not a runtime directory of the unit's, which would belong to the service user.
  secretDirectory = "/run/cloister-secrets";
  declared = cfg.tenantRegistryFile == null;
  result = import ./tenants.nix {
    inherit (cfg) tenants workspaceRoots;
    inherit stateDirectory secretDirectory;
  };
  inherit
    (import ./endpoints.nix {
      inherit (cfg) models mcp;
      inherit secretDirectory secretFaults;
      places = [ stateDirectory ] ++ cfg.workspaceRoots;
    })
    models
    mcp
    ;
  modelsFile = if cfg.models != { } then "/etc/cloister/models.json" else cfg.modelsFile;
  # Something of root's is to be done before the service reads what was declared.
  prepared = declared || models.hasKeys || mcp.hasKeys || cfg.metricsTokenFile != null || external;
  secretLine =
    name: what: file:
    if file == null then "" else "secret\t${name}\t${what}\t${file}\n";
  list =
    (if declared then result.list else "")
    + models.list
    + mcp.list
    + secretLine "metrics" "token for metrics" cfg.metricsTokenFile
    + secretLine "database" "URL of the database" cfg.database.urlFile;
  etc = name: config.environment.etc."cloister/${name}".source;

  # A server of somebody else's, or one that the service makes and runs.
  external = cfg.database.urlFile != null;
  wanted = toString (if cfg.database.majorVersion == null then 17 else cfg.database.majorVersion);
  postgres =
    if cfg.database.package != null then cfg.database.package else pkgs."postgresql_${wanted}" or null;

  given = lib.filterAttrs (_: value: value != null) cfg.limits;
  limits = import ./limits.nix;

  unit = import ./service.nix {
    inherit (cfg)
      user
      group
      stateDirectory
      workspaceRoots
      environmentFiles
      host
      port
      ;
    inherit (cfg.unit) memoryMax tasksMax openFiles;
    after = lib.optional (external && config.services.postgresql.enable) "postgresql.service";
    # The copies of secrets are not there yet when the first of root's commands makes them.
    visible =
      lib.optional prepared "-${secretDirectory}"
      ++ lib.optional (cfg.database.socketDirectory != null) cfg.database.socketDirectory;
    programs = "${cfg.package}/bin";
    rootfs = "${cfg.rootfs}";
    tenants = if declared then "/etc/cloister/tenants.json" else cfg.tenantRegistryFile;
    drainSeconds = given.drainSeconds or limits.drainSeconds.default;
    prepare =
      if prepared then
        [
          # Of the unit's walls its /run with nothing in it stands for root's commands as well,
          # and there the secrets are: this one leaves it.
          "${pkgs.util-linux}/bin/nsenter"
          "--target"
          "1"
          "--mount"
          "--"
          "${ours.prepare}/bin/prepare-tenants"
          "/etc/cloister/tenants.list"
          cfg.user
          cfg.group
          secretDirectory
        ]
      else
        [ ];
    options = {
      runner = "${cfg.runnerPackage}/bin/cloister-runner";
      guest = "${cfg.guestPackage}/bin/cloister-guest";
      runsc = "${cfg.runscPackage}/bin/runsc";
      slirp4netns = "${cfg.slirp4netnsPackage}/bin/slirp4netns";
      postgres-bin = lib.optional (!external) "${postgres}/bin";
      database-url-file = lib.optional external "${secretDirectory}/database";
      log = cfg.logFormat;
      log-level = cfg.logLevel;
      metrics-token-file = lib.optional (cfg.metricsTokenFile != null) "${secretDirectory}/metrics";
      cors-origin = cfg.corsOrigins;
      host-address = cfg.hostAddresses;
      trusted-proxy = proxies;
      models = lib.optional (modelsFile != null) modelsFile;
      mcp = lib.optional (cfg.mcp != { }) "/etc/cloister/mcp.json";
      allow-http-repositories = cfg.allowHttpRepositories;
    }
    // lib.mapAttrs' (name: lib.nameValuePair limits.${name}.option) (
      removeAttrs given [ "drainSeconds" ]
    );
  };

  # -- what is refused, each with one sentence ------------------------------------------

  unless = condition: text: if condition then [ ] else [ text ];
  at = name: "services.cloister.${name}";

  reservedUsers = [
    "root"
    "nobody"
    "nogroup"
    "wheel"
    "users"
    "nixbld"
    "daemon"
    "postgres"
    "nginx"
  ];
  accountName = name: builtins.match "[a-z_][a-z0-9_-]{0,30}" name != null;
  reserved = builtins.elem cfg.user reservedUsers || builtins.elem cfg.group reservedUsers;
  users = config.users.users;
  groups = config.users.groups;
  others = set: name: removeAttrs set [ name ];
  namesWhere = predicate: set: builtins.attrNames (lib.filterAttrs predicate set);
  words = builtins.concatStringsSep ", ";

  shared = {
    # Who could do to the service's files and processes what the service can.
    users = namesWhere (
      _: u: u.group == cfg.group || builtins.elem cfg.group u.extraGroups
    ) (others users cfg.user);
    groups = namesWhere (_: g: builtins.elem cfg.user g.members) groups;
    members = lib.filter (name: name != cfg.user) (groups.${cfg.group}.members or [ ]);
    services = namesWhere (_: s: (s.serviceConfig.User or null) == cfg.user) (
      others config.systemd.services "cloister"
    );
  };

  accountFaults =
    unless (accountName cfg.user) "${at "user"}: ${cfg.user} is no name for a user"
    ++ unless (accountName cfg.group) "${at "group"}: ${cfg.group} is no name for a group"
    ++ unless (!builtins.elem cfg.user reservedUsers)
      "${at "user"}: ${cfg.user} is not the service's own; name a user that nothing else is"
    ++ unless (!builtins.elem cfg.group reservedUsers)
      "${at "group"}: ${cfg.group} is not the service's own; name a group that nobody else is in"
    ++ lib.optionals (!reserved) (
      unless (!(users.${cfg.user}.isNormalUser or false))
        "${at "user"}: ${cfg.user} is a person's user; name one that nobody is"
      ++ unless ((users.${cfg.user}.extraGroups or [ ]) == [ ] && shared.groups == [ ])
        "${at "user"}: ${cfg.user} is in other groups (${
          words ((users.${cfg.user}.extraGroups or [ ]) ++ shared.groups)
        }); the service refuses to start with them"
      ++ unless (shared.users == [ ] && shared.members == [ ])
        "${at "group"}: others are in ${cfg.group} (${words (shared.users ++ shared.members)}); name a group that nobody else is in"
      ++ unless (shared.services == [ ])
        "${at "user"}: ${cfg.user} also runs ${words shared.services}; name a user that nothing else is"
    );

  pathFaults =
    name: path:
    let
      fault = unitPathFault path;
    in
    unless (fault == null) "${at name}: ${builtins.toJSON path} ${toString fault}";

  # What the unit cannot see and is not made visible by naming it.
  hidden = [
    "/boot"
    "/home"
    "/media"
    "/mnt"
    "/root"
    "/run/user"
    "/tmp"
    "/var/tmp"
  ];
  isHidden = path: builtins.any (inside path) hidden;

  # Of a file that the daemon itself reads.
  unseenFaults =
    name: path:
    unless (!isHidden path && !inside path "/run")
      "${at name}: ${path} is where the unit cannot see it; name a file in /etc or /var/lib";

  rootFaults =
    root:
    pathFaults "workspaceRoots" root
    ++ map (
      place:
      "${at "workspaceRoots"}: ${root} is below ${place}, which the unit cannot see; name a directory elsewhere, such as /srv/cloister, and mount the disk there"
    ) (lib.filter (inside root) hidden)
    ++ unless (!builtins.any (inside root) [ "/nix" "/etc" "/run" "/dev" "/proc" "/sys" ] || isHidden root)
      "${at "workspaceRoots"}: ${root} belongs to the system"
    ++ unless (!inside root stateDirectory && !inside stateDirectory root)
      "${at "workspaceRoots"}: ${root} and the state directory ${stateDirectory} lie inside one another";

  secretFaults =
    name: path:
    if inStore path then
      [
        "${at name}: ${path} is in the Nix store, where everybody can read it; name a file that only the machine has, as a string"
      ]
    else
      pathFaults name path;

  # Where others than root write, nothing of theirs may be read as the operator's.
  placeFaults =
    name: path:
    map (place: "${at name}: ${path} lies below ${place}, where others than root write") (
      lib.filter (inside path) ([ stateDirectory ] ++ cfg.workspaceRoots)
    );

  # A tenant's token in one of these would open more than the tenant.
  sharedFaults =
    name: path:
    lib.concatMap (
      tenant:
      map (credential: "${at name}: ${path} is the same file as ${at "tenants"}.${tenant}.tokenFiles.${credential}") (
        lib.filter (credential: cfg.tenants.${tenant}.tokenFiles.${credential} == path) (
          builtins.attrNames cfg.tenants.${tenant}.tokenFiles
        )
      )
    ) (builtins.attrNames cfg.tenants);

  registryFaults =
    unless (declared || cfg.tenants == { })
      "${at "tenantRegistryFile"}: and tenants exclude one another; declare tenants, or name a file"
    ++ unless (!declared || cfg.tenants != { })
      "${at "tenants"}: is empty; declare a tenant, or name a registry in tenantRegistryFile"
    ++ lib.optionals declared result.faults
    ++ lib.optionals (!declared) (
      pathFaults "tenantRegistryFile" cfg.tenantRegistryFile
      ++ unless (!inStore cfg.tenantRegistryFile)
        "${at "tenantRegistryFile"}: ${cfg.tenantRegistryFile} is in the Nix store, and each change of it would restart the service; declare its tenants in ${at "tenants"}"
      ++ unless (!inside cfg.tenantRegistryFile stateDirectory)
        "${at "tenantRegistryFile"}: ${cfg.tenantRegistryFile} lies inside the state directory"
      ++ unseenFaults "tenantRegistryFile" cfg.tenantRegistryFile
      ++ map (
        root:
        "${at "tenantRegistryFile"}: ${cfg.tenantRegistryFile} lies below ${root}, where workspaces are"
      ) (lib.filter (inside cfg.tenantRegistryFile) cfg.workspaceRoots)
    );

  modelFaults =
    models.faults
    ++ unless (cfg.modelsFile == null || cfg.models == { })
      "${at "modelsFile"}: and models exclude one another; declare models, or name a file"
    ++ lib.optionals (cfg.modelsFile != null) (
      pathFaults "modelsFile" cfg.modelsFile
      ++ unseenFaults "modelsFile" cfg.modelsFile
      ++ placeFaults "modelsFile" cfg.modelsFile
    )
    ++ lib.concatMap unknownModels (builtins.attrNames cfg.tenants);

  mcpFaults =
    mcp.faults
    ++ lib.concatMap (
      name:
      let
        unknown = lib.filter (id: !(cfg.mcp ? ${id})) cfg.tenants.${name}.mcp;
      in
      unless (unknown == [ ]) "${at "tenants.${name}.mcp"}: not declared in ${at "mcp"}: ${words unknown}"
    ) (builtins.attrNames cfg.tenants);

  unknownModels =
    name:
    let
      given = cfg.tenants.${name}.models;
      known = if cfg.models == { } then [ "demo" ] else builtins.attrNames cfg.models;
      unknown = lib.filter (id: !builtins.elem id known) (if given == null then [ ] else given);
    in
    unless (unknown == [ ] || cfg.modelsFile != null)
      "${at "tenants.${name}.models"}: not declared in ${at "models"}: ${words unknown} (declared: ${words known})";

  isOrigin =
    text:
    builtins.match "https?://[a-z0-9._:-]+|https?://\\[[0-9a-f:]+](:[0-9]+)?" text != null
    && builtins.stringLength text <= 240;

  listenFaults =
    unless (isAddress cfg.host) "${at "host"}: ${cfg.host} is not an IPv4 or IPv6 address"
    ++ unless (isLoopback cfg.host || cfg.allowRemote)
      "${at "host"}: ${cfg.host} can be reached from other machines, and ${at "allowRemote"} is not set"
    ++ unless (cfg.port != 0) "${at "port"}: 0 would be another port at each start"
    ++ map (text: "${at "corsOrigins"}: ${text} is not http:// or https:// with a host in lower case, and nothing behind") (
      lib.filter (text: !isOrigin text) cfg.corsOrigins
    )
    ++ map (text: "${at "hostAddresses"}: ${builtins.toJSON text} ${networkFault text}") (
      lib.filter (text: networkFault text != null) cfg.hostAddresses
    )
    ++ map (text: "${at "trustedProxies"}: ${text} is not an IPv4 or IPv6 address") (
      lib.filter (text: !isAddress text) cfg.trustedProxies
    )
    ++ unless (lib.length proxies <= 256) "${at "trustedProxies"}: more than 256"
    ++ unless (lib.length cfg.corsOrigins <= 256) "${at "corsOrigins"}: more than 256"
    ++ unless (lib.length cfg.hostAddresses <= 256) "${at "hostAddresses"}: more than 256"
    ++ unless (!cfg.reverseProxy.enable || cfg.reverseProxy.serverName != "")
      "${at "reverseProxy.serverName"}: is needed to name the virtual host";

  # A share that is not set is never too large: the daemon cuts its default to the whole.
  shareFaults =
    name:
    let
      whole = limits.${name}.share;
      is = given.${name};
      of = given.${whole} or limits.${whole}.default;
    in
    unless (is <= of) "${at "limits.${name}"}: ${toString is} is more than limits.${whole}, ${toString of}";

  # Of the whole unit in MiB, where that does not depend on the machine.
  memoryMiB =
    let
      found = builtins.match "([0-9]+)([MGT])" cfg.unit.memoryMax;
      size = {
        M = 1;
        G = 1024;
        T = 1024 * 1024;
      };
    in
    if found == null then null else builtins.fromJSON (lib.elemAt found 0) * size.${lib.elemAt found 1};

  # Of the unit, 512 MiB (a quarter at most) and 1,024 tasks are kept for the daemon.
  forSandboxes =
    if memoryMiB == null then null else memoryMiB - lib.min 512 (memoryMiB / 4);
  tenantLimitFaults =
    name:
    let
      l = cfg.tenants.${name}.limits;
      tasks = 64 + 3 * l.processes;
    in
    unless (l.memoryMiB == null || forSandboxes == null || l.memoryMiB <= forSandboxes)
      "${at "tenants.${name}.limits.memoryMiB"}: ${toString l.memoryMiB} is more than all sandboxes together have, ${toString forSandboxes} (${at "unit.memoryMax"} is ${cfg.unit.memoryMax})"
    ++ unless (l.processes == null || tasks <= cfg.unit.tasksMax - 1024)
      "${at "tenants.${name}.limits.processes"}: ${toString l.processes} take ${toString tasks} tasks, more than all sandboxes together have, ${toString (cfg.unit.tasksMax - 1024)} (${at "unit.tasksMax"} less 1,024)";

  limitFaults =
    lib.concatMap shareFaults (namesWhere (name: _: limits.${name} ? share) given)
    ++ lib.optionals declared (lib.concatMap tenantLimitFaults (builtins.attrNames cfg.tenants));

  managedFaults =
    if postgres == null then
      [
        "${at "database.majorVersion"}: this nixpkgs has no PostgreSQL ${wanted}; name one in ${at "database.package"} (an older nixpkgs has it), or upgrade: docs/operate-nixos.md, \"Another PostgreSQL\""
      ]
    else
      unless (lib.versions.major postgres.version == wanted)
        "${at "database.package"}: is PostgreSQL ${postgres.version}, and the database is of ${wanted} (${at "database.majorVersion"}); to upgrade it, stop the service, run upgrade-database ${stateDirectory} ${cfg.user} OLD/bin NEW/bin as root (docs/operate-nixos.md, \"Another PostgreSQL\"), and set database.majorVersion = ${lib.versions.major postgres.version}";

  externalFaults =
    secretFaults "database.urlFile" cfg.database.urlFile
    ++ placeFaults "database.urlFile" cfg.database.urlFile
    ++ sharedFaults "database.urlFile" cfg.database.urlFile
    ++ map (name: "${at "database.${name}"}: is of the database that the service runs itself, and ${at "database.urlFile"} names another; leave one of them out") (
      lib.filter (name: cfg.database.${name} != null) [
        "majorVersion"
        "package"
      ]
    );

  socketFaults =
    path:
    let
      colon = if builtins.match ".*:.*" path == null then null else "has a colon in it, which systemd takes for the end of a path";
      fault = if unitPathFault path == null then colon else unitPathFault path;
      here = text: "${at "database.socketDirectory"}: ${text}";
    in
    unless external (here "is of a server that ${at "database.urlFile"} names, and that is not set")
    ++ unless (fault == null) (here "${builtins.toJSON path} ${toString fault}")
    ++ unless (path != "/run" && !builtins.any (inside path) ([ secretDirectory stateDirectory ] ++ cfg.workspaceRoots))
      (here "${path} is not a directory of the database server's alone")
    ++ unless (!isHidden path)
      (here "${path} is where the unit cannot see it; have the server make its socket below /run");

  databaseFaults =
    (if external then externalFaults else managedFaults)
    ++ lib.optionals (cfg.database.socketDirectory != null) (socketFaults cfg.database.socketDirectory);

  hostFaults = unless config.security.allowUserNamespaces "security.allowUserNamespaces: is off, and every sandbox is made of user namespaces";

  faults =
    accountFaults
    ++ unless (builtins.match "[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*" cfg.stateDirectory != null)
      "${at "stateDirectory"}: ${builtins.toJSON cfg.stateDirectory} is not a path below /var/lib in plain letters"
    ++ unless (cfg.workspaceRoots != [ ]) "${at "workspaceRoots"}: is empty, and workspaces need a place"
    ++ lib.concatMap rootFaults cfg.workspaceRoots
    ++ lib.concatMap (
      path: secretFaults "environmentFiles" path ++ placeFaults "environmentFiles" path
    ) cfg.environmentFiles
    ++ lib.optionals (cfg.metricsTokenFile != null) (
      secretFaults "metricsTokenFile" cfg.metricsTokenFile
      ++ placeFaults "metricsTokenFile" cfg.metricsTokenFile
      ++ sharedFaults "metricsTokenFile" cfg.metricsTokenFile
    )
    ++ registryFaults
    ++ modelFaults
    ++ mcpFaults
    ++ listenFaults
    ++ limitFaults
    ++ databaseFaults
    ++ hostFaults;

  # -- nginx ------------------------------------------------------------------------------

  # Where the daemon is reached from this machine, and where nginx then comes from.
  reached =
    {
      "0.0.0.0" = "127.0.0.1";
      "::" = "::1";
    }
    .${cfg.host} or cfg.host;
  upstream = if lib.hasInfix ":" reached then "[${reached}]" else reached;
  proxies = cfg.trustedProxies ++ lib.optional cfg.reverseProxy.enable reached;
in
{
  options.services.cloister = import ./options.nix { inherit lib pkgs ours; };

  config = lib.mkIf cfg.enable {
    assertions = map (message: {
      assertion = false;
      inherit message;
    }) faults;

    warnings = lib.optional config.security.lockKernelModules ''
      services.cloister: security.lockKernelModules is on, and sandboxes need modules that the
      kernel loads on demand. Name those that "lsmod" shows with a sandbox running in
      boot.kernelModules.
    '';

    users = lib.mkIf (!reserved) {
      users.${cfg.user} = {
        isSystemUser = true;
        group = cfg.group;
        description = "Cloister service";
      };
      groups.${cfg.group} = { };
    };

    # Roots are the operator's; the workspaces in them are the service's.
    systemd.tmpfiles.rules = map (root: "d ${root} 0755 root root -") cfg.workspaceRoots;
    boot.kernelModules = [ "tun" ];

    environment.systemPackages = [ cfg.package ] ++ lib.optional (!external) ours.upgrade-database;
    # Regular files of root's: the daemon follows no link to them.
    environment.etc = lib.mkMerge [
      (lib.mkIf declared {
        "cloister/tenants.json" = {
          text = result.registry;
          mode = "0444";
        };
      })
      (lib.mkIf prepared {
        "cloister/tenants.list" = {
          text = list;
          mode = "0444";
        };
      })
      (lib.mkIf (cfg.models != { }) {
        "cloister/models.json" = {
          text = models.file;
          mode = "0444";
        };
      })
      (lib.mkIf (cfg.mcp != { }) {
        "cloister/mcp.json" = {
          text = mcp.file;
          mode = "0444";
        };
      })
    ];

    systemd.services.cloister = {
      description = unit.Unit.Description;
      after = unit.Unit.After;
      wants = unit.Unit.Wants;
      wantedBy = unit.Install.WantedBy;
      unitConfig = removeAttrs unit.Unit [
        "Description"
        "After"
        "Wants"
      ];
      serviceConfig = unit.Service;
      reloadTriggers =
        lib.optional declared (etc "tenants.json") ++ lib.optional prepared (etc "tenants.list");
      # Models, MCP servers and keys are read at the start alone, and so are the URL and the
      # token for metrics, which the unit knows by the names of their copies.
      restartTriggers =
        lib.optional (cfg.models != { }) (etc "models.json")
        ++ lib.optional (cfg.mcp != { }) (etc "mcp.json")
        ++ lib.optional external cfg.database.urlFile
        ++ lib.optional (cfg.metricsTokenFile != null) cfg.metricsTokenFile;
    };

    # The unit sees the directory as it was when it started: made anew with each restart of the
    # server, it would never see the new server's socket.
    systemd.services.postgresql = lib.mkIf (external && config.services.postgresql.enable) {
      serviceConfig.RuntimeDirectoryPreserve = lib.mkDefault true;
    };

    services.nginx = lib.mkIf cfg.reverseProxy.enable {
      enable = true;
      virtualHosts.${cfg.reverseProxy.serverName}.locations."/" = {
        proxyPass = "http://${upstream}:${toString cfg.port}";
        extraConfig = ''
          proxy_http_version 1.1;
          proxy_set_header Connection "";
          # Whose wrong tokens are counted; what the client says of itself is left out.
          proxy_set_header X-Forwarded-For $remote_addr;
          # Event streams: each event goes out when it comes, and silence ends nothing.
          proxy_buffering off;
          proxy_read_timeout 1h;
          # As much as the daemon takes.
          client_max_body_size ${toString (given.maxRequestBytes or limits.maxRequestBytes.default)};
        '';
      };
    };
  };
}
