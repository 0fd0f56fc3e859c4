# Declared models of providers and MCP servers as what the machine gets: { models, mcp }, each
# with the daemon's file of them, and the lines from which a privileged step makes copies of
# their keys. Builtins only.
#
# As in tenants.nix, "faults" has one sentence for each that can be known of here: what stands
# in the files is judged as the daemon judges it, because it reads them at its start alone, and
# one fault of one model would keep it from starting. What it finds by itself is in the keys.
{
  models, # id to model, as declared
  mcp, # id to server, likewise
  secretDirectory, # where the copies go, absolute
  secretFaults, # name of an option, path: what is wrong with a secret's path
  places, # directories in which no key may lie
}:

let
  inherit (import ./paths.nix) inside;

  local = url: builtins.match "http://(127\\.0\\.0\\.1|localhost|\\[::1])([:/].*)?" url != null;
  secure = url: builtins.match "https://.+" url != null;
  plain = url: builtins.match "http://.+" url != null;
  # null, or what is wrong with a URL, as daemon/model/endpoint.c has it. A secret may stand in it.
  urlFault =
    url: keyName:
    let
      port = builtins.match "https?://(\\[[^]/]*]|[^:/[][^:/]*):([0-9]{1,5})(/.*)?" url;
      number = builtins.match "0*([1-9][0-9]*)" (builtins.elemAt port 1);
      validPort = number != null && builtins.fromJSON (builtins.head number) <= 65535;
    in
    if !secure url && !plain url then
      "${builtins.toJSON url} begins neither with https:// nor with http://"
    else if builtins.match "[^@?#\\]*" url == null then
      "has a user, a query or a fragment; what is secret belongs in ${keyName}"
    else if builtins.stringLength url > 1024 || builtins.match "[!-~]*" url == null then
      "is not up to 1,024 bytes of printable ASCII without blanks"
    else if port == null && builtins.match "https?://(\\[[^]/]*]|[^:/[][^:/]*)(/.*)?" url == null then
      "has no host, or something else than a port behind it"
    else if port != null && !validPort then
      "has a port that is not from 1 to 65535"
    else
      null;

  # Names of headers: those that can be, and those that requests are made of.
  isHeader = name: builtins.match "[A-Za-z0-9_-]{1,64}" name != null;
  isReserved =
    name:
    builtins.elem (lower name) [
      "accept"
      "connection"
      "content-encoding"
      "content-length"
      "content-type"
      "expect"
      "host"
      "mcp-protocol-version"
      "mcp-session-id"
      "te"
      "trailer"
      "transfer-encoding"
      "upgrade"
    ];
  headerFault =
    name: value:
    if !isHeader name then
      "a name is 1 to 64 letters, digits, - and _"
    else if isReserved name then
      "requests are made of it; leave it out"
    else if mayCarryKey name then
      "may carry a key, and everybody can read it here; use apiKeyFile"
    else if !isText value || builtins.match "[ -~]*" value == null then
      "must be 1 to 256 bytes of printable ASCII"
    else
      null;
  isText = text: text != "" && builtins.stringLength text <= 256;

  # In the same words as daemon/model/models.c.
  mayCarryKey =
    name:
    builtins.match ".*(auth|cookie|credential|key|passw|secret|signature|token).*" (lower name) != null;
  letters = text: builtins.genList (i: builtins.substring i 1 text) 26;
  lower = builtins.replaceStrings (letters "ABCDEFGHIJKLMNOPQRSTUVWXYZ") (letters "abcdefghijklmnopqrstuvwxyz");
  when = condition: text: if condition then [ text ] else [ ];
  reasoningFaults =
    say:
    { api, reasoning, ... }:
    when (builtins.length reasoning.efforts != builtins.length (builtins.attrNames (builtins.groupBy (x: x) reasoning.efforts)))
      (say ".reasoning.efforts: one stands twice")
    ++ when (reasoning.budget && (api != "messages" || reasoning.efforts != [ ]))
      (say ".reasoning.budget: is for messages only, and instead of efforts")
    ++ when (reasoning.summaries && (api == "chat-completions" || reasoning.budget))
      (say ".reasoning.summaries: is for responses, and for messages without a budget");
  present = set: removeAttrs set (builtins.filter (name: set.${name} == null) (builtins.attrNames set));

  make =
    {
      option, # its name below services.cloister
      declared,
      most,
      idPattern,
      idWords, # the same for people
      urlName, # of the options of an entry
      keyName,
      prefix, # of the names of copies
      what, # a key is, for people
      listName, # in the daemon's file
      faultsOf, # say, id: faults of an entry's own
      fieldsOf, # id: what else stands in the file
    }:
    let
      ids = builtins.attrNames declared;
      at = id: "${option}.${builtins.toJSON id}";
      say = id: text: "services.cloister.${at id}${text}";
      url = id: declared.${id}.${urlName};
      key = id: declared.${id}.${keyName};
      keyed = builtins.filter (id: key id != null) ids;
      # Named by the file, and not by the entry: sessions keep to an account, and two models with
      # one file are of one account.
      copy = file: "${prefix}-${builtins.substring 0 32 (builtins.hashString "sha256" file)}";

      keyFaults =
        id:
        secretFaults "${at id}.${keyName}" (key id)
        ++ map (dir: say id ".${keyName}: ${key id} lies inside ${dir}, which is no place for secrets") (
          builtins.filter (inside (key id)) places
        );
      faults =
        id:
        when (builtins.match idPattern id == null) (say id ": an id is ${idWords}")
        ++ faultsOf (say id) id
        ++ when (urlFault (url id) keyName != null)
          (say id ".${urlName}: ${toString (urlFault (url id) keyName)}")
        ++ when (plain (url id) && !local (url id) && key id != null)
          (say id ".${urlName}: would carry the key unencrypted; use https://")
        ++ (if key id == null then [ ] else keyFaults id);
    in
    {
      faults =
        when (builtins.length ids > most) "services.cloister.${option}: more than ${toString most}"
        ++ builtins.concatLists (map faults ids);

      file = builtins.toJSON {
        version = 1;
        ${listName} = map (
          id:
          present (
            declared.${id}
            // {
              inherit id;
              ${keyName} = if key id == null then null else "${secretDirectory}/${copy (key id)}";
            }
            // fieldsOf id
          )
        ) ids;
      };

      # As tenants.nix has them. One copy of a file, whoever uses it.
      list = builtins.concatStringsSep "" (
        map (file: "secret\t${copy file}\t${what}\t${file}\n") (
          builtins.attrNames (builtins.groupBy (id: builtins.unsafeDiscardStringContext (key id)) keyed)
        )
      );
      hasKeys = keyed != [ ];
    };
in
{
  models = make {
    option = "models";
    declared = models;
    most = 64;
    idPattern = "[A-Za-z0-9._:/-]{1,64}";
    idWords = "1 to 64 letters, digits and -._:/";
    urlName = "baseUrl";
    keyName = "apiKeyFile";
    prefix = "model";
    what = "key of models";
    listName = "models";
    faultsOf =
      say: id:
      let
        m = models.${id};
        prices = if m.prices == null then { } else present m.prices;
      in
      when (id == "demo") (say ": demo is the built-in model")
      ++ map (name: say ".${name}: must be 1 to 256 bytes") (
        builtins.filter (name: !isText m.${name}) [
          "label"
          "model"
        ]
      )
      ++ when (builtins.match ".*/" m.baseUrl != null)
        (say ".baseUrl: ends with a slash; the path of its format is appended")
      ++ (if m.reasoning == null then [ ] else reasoningFaults say m)
      ++ map (name: say ".prices.${name}: must be from 0 to 1,000,000") (
        builtins.filter (name: prices.${name} < 0 || prices.${name} > 1000000) (builtins.attrNames prices)
      )
      ++ when (m.maxOutputTokens > m.contextWindow) (say ".maxOutputTokens: is more than contextWindow")
      ++ when (builtins.length (builtins.attrNames m.headers) > 16) (say ".headers: more than 16")
      ++ map (name: say ".headers.${builtins.toJSON name}: ${headerFault name m.headers.${name}}") (
        builtins.filter (name: headerFault name m.headers.${name} != null) (builtins.attrNames m.headers)
      );
    fieldsOf =
      id:
      let
        m = models.${id};
      in
      {
        headers = if m.headers == { } then null else m.headers;
        prices = if m.prices == null then null else present m.prices;
      };
  };

  mcp = make {
    option = "mcp";
    declared = mcp;
    most = 32;
    idPattern = "[a-z][a-z0-9-]{0,23}";
    idWords = "1 to 24 of a-z, 0-9 and -, and starts with a letter";
    urlName = "url";
    keyName = "tokenFile";
    prefix = "mcp";
    what = "token of MCP servers";
    listName = "servers";
    faultsOf =
      say: id:
      when (mcp.${id}.tokenHeader != null && mcp.${id}.tokenFile == null)
        (say ".tokenHeader: there is no tokenFile")
      ++ when (mcp.${id}.tokenHeader != null && (!isHeader mcp.${id}.tokenHeader || isReserved mcp.${id}.tokenHeader))
        (say ".tokenHeader: must be 1 to 64 letters, digits, - and _, and none that a request is made of");
    fieldsOf = _: { };
  };
}
