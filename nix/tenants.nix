# Declared tenants as what the machine gets: the daemon's registry, and the list from which
# a privileged step makes directories, quotas and copies of secrets. Builtins only.
#
# Whatever can be known of a fault before a machine is touched is in "faults", one sentence
# each; with any of them the other results mean nothing.
{
  tenants, # name to tenant, as declared
  workspaceRoots,
  stateDirectory, # absolute
  secretDirectory, # where the copies go, absolute
}:

let
  inherit (import ./paths.nix) pathFault inside inStore networkFault octets;

  names = builtins.attrNames tenants;
  at = name: "services.cloister.tenants.${name}";
  when = condition: text: if condition then [ text ] else [ ];
  each = f: builtins.concatLists (map f names);
  quote = builtins.toJSON;
  # One fault for each but the first of entries with the same key.
  duplicates =
    what: entries:
    let
      # A path into the store, refused elsewhere, may not be a name.
      groups = builtins.groupBy (entry: builtins.unsafeDiscardStringContext entry.key) entries;
    in
    builtins.concatLists (
      map (
        key:
        let
          all = groups.${key};
          first = builtins.head all;
        in
        map (entry: "${entry.at} is ${what} ${first.at}: ${key}") (builtins.tail all)
      ) (builtins.attrNames groups)
    );

  # -- who --

  hex = "[0-9a-f]";
  isUuid = text: builtins.match "${hex}{8}-${hex}{4}-${hex}{4}-${hex}{4}-${hex}{12}" text != null;
  reserved = [
    "00000000-0000-0000-0000-000000000000"
    "10ca1000-0000-8000-8000-000000000001"
  ];
  nameFaults =
    name:
    when (builtins.match "[a-z][a-z0-9-]{0,63}" name == null)
      "${at name}: a name is 1 to 64 of a-z, 0-9 and -, and begins with a letter"
    ++ when (!isUuid tenants.${name}.id)
      "${at name}.id: ${quote tenants.${name}.id} is not a UUID in lower case, as uuidgen prints it"
    ++ when (builtins.elem tenants.${name}.id reserved)
      "${at name}.id: ${tenants.${name}.id} is nobody's; draw one with uuidgen";

  # -- where --

  workspace = name: tenants.${name}.workspace;
  workspaceFaults =
    name:
    let
      path = workspace name;
      fault = pathFault path;
    in
    if fault != null then
      [ "${at name}.workspace: ${quote path} ${fault}" ]
    else
      when (!builtins.any (root: path != root && inside path root) workspaceRoots)
        "${at name}.workspace: ${path} is not below one of services.cloister.workspaceRoots (${builtins.concatStringsSep ", " workspaceRoots}), and the service can write nowhere else"
      ++ when (inside path stateDirectory || inside stateDirectory path)
        "${at name}.workspace: ${path} and the state directory ${stateDirectory} lie inside one another";

  # What lies in /a comes right behind /a: sorted with a slash at the end, each path needs
  # to be compared only with the last one that lies in no other.
  overlaps =
    let
      sorted = builtins.sort (a: b: a.key < b.key) (
        map (name: {
          inherit name;
          key = "${workspace name}/";
        }) names
      );
      step =
        { outer, faults }:
        entry:
        if outer == null || !inside (workspace entry.name) (workspace outer.name) then
          {
            outer = entry;
            inherit faults;
          }
        else
          {
            inherit outer;
            faults = faults ++ [
              "${at entry.name}.workspace: ${workspace entry.name} overlaps the workspace of ${outer.name}, ${workspace outer.name}"
            ];
          };
    in
    (builtins.foldl' step {
      outer = null;
      faults = [ ];
    } sorted).faults;

  # -- with which token --

  # Made from names alone, so that it stays the same for as long as they do.
  credentialId =
    tenant: credential:
    let
      digest = builtins.hashString "sha256" "${tenants.${tenant}.id}/${credential}";
      part = from: length: builtins.substring from length digest;
    in
    "${part 0 8}-${part 8 4}-8${part 12 3}-a${part 15 3}-${part 18 12}";

  declared =
    field: name:
    map (credential: {
      id = credentialId name credential;
      value = tenants.${name}.${field}.${credential};
      at = "${at name}.${field}.${credential}";
    }) (builtins.attrNames tenants.${name}.${field});

  credentials = declared "tokenFiles";
  hashes = declared "tokenHashes";

  credentialFaults =
    name:
    let
      count = builtins.length (credentials name ++ hashes name);
      both = builtins.intersectAttrs tenants.${name}.tokenFiles tenants.${name}.tokenHashes;
    in
    when (count < 1)
      "${at name}: has no token; declare the hash of one in tokenHashes, or name a file in tokenFiles"
    ++ when (count > 16) "${at name}: has ${toString count} tokens, at most 16"
    ++ map (credential: "${at name}.tokenHashes.${credential}: the same name as in tokenFiles") (
      builtins.attrNames both
    )
    ++ map (c: "${c.at}: ${quote c.value} is not 64 hex digits in lower case, as \"cloisterd token new\" prints them") (
      builtins.filter (c: builtins.match "${hex}{64}" c.value == null) (hashes name)
    )
    ++ builtins.concatLists (map (c: tokenFaults c) (credentials name));

  tokenFaults =
    c:
    let
      fault = pathFault c.value;
      # Every workspace is below a root, or refused: of many tenants, few files need all of them.
      near = builtins.any (inside c.value) workspaceRoots;
      holders = if near then builtins.filter (name: inside c.value (workspace name)) names else [ ];
    in
    if inStore c.value then
      [
        "${c.at}: ${c.value} is in the Nix store, where everybody can read it; name a file that only the machine has, as a string"
      ]
    else if fault != null then
      [ "${c.at}: ${quote c.value} ${fault}" ]
    else
      when (inside c.value stateDirectory) "${c.at}: ${c.value} lies inside the state directory"
      ++ map (name: "${c.at}: ${c.value} lies inside the workspace of ${name}, who can read it") holders;

  # -- what it may reach and use --

  portFault =
    port:
    let
      range = if builtins.isInt port then null else builtins.match "([1-9][0-9]{0,4})-([1-9][0-9]{0,4})" port;
      ends = if builtins.isInt port then [ port port ] else map builtins.fromJSON range;
      low = builtins.elemAt ends 0;
      high = builtins.elemAt ends 1;
    in
    (!builtins.isInt port && range == null) || low < 1 || high > 65535 || low > high;

  resolverFault =
    text:
    let
      address = octets text;
    in
    address == null
    || builtins.elem (builtins.head address) [
      0
      127
    ]
    || builtins.head address >= 224;

  allowFaults =
    name: index:
    let
      entry = builtins.elemAt tenants.${name}.egress.allow index;
      place = "${at name}.egress.allow, entry ${toString (index + 1)}";
      fault = networkFault entry.cidr;
    in
    when (fault != null) "${place}: ${quote entry.cidr} ${toString fault}"
    ++ when (entry.ports != null && entry.ports == [ ])
      "${place}: ports is empty; leave it out to allow all of them"
    ++ when (entry.ports != null && builtins.length entry.ports > 16)
      "${place}: more than 16 ports and ranges"
    ++ map (port: "${place}: ${quote port} is neither a port from 1 to 65535 nor a range such as \"8000-8100\"") (
      builtins.filter portFault (if entry.ports == null then [ ] else entry.ports)
    );

  egressFaults =
    name:
    let
      e = tenants.${name}.egress;
      indices = builtins.genList (i: i) (builtins.length e.allow);
    in
    when (e.mode == "allow" && e.allow == [ ])
      "${at name}.egress: mode is \"allow\" and nothing is allowed; mode \"none\" says that"
    ++ when (e.mode != "allow" && e.allow != [ ])
      "${at name}.egress.allow: only with mode \"allow\", not with \"${e.mode}\""
    ++ when (builtins.length e.allow > 1000) "${at name}.egress.allow: more than 1,000 networks"
    ++ builtins.concatLists (map (allowFaults name) indices)
    ++ when (e.mode == "none" && e.dns != null && e.dns != "off")
      "${at name}.egress.dns: nothing but \"off\" with mode \"none\""
    ++ (
      if !builtins.isList e.dns then
        [ ]
      else
        when (builtins.length e.dns < 1 || builtins.length e.dns > 3)
          "${at name}.egress.dns: ${toString (builtins.length e.dns)} resolvers, must be 1 to 3"
        ++ map (text: "${at name}.egress.dns: ${quote text} is not the IPv4 address of a resolver") (
          builtins.filter resolverFault e.dns
        )
        ++ when (builtins.length e.dns != builtins.length (builtins.attrNames (builtins.groupBy (x: x) e.dns)))
          "${at name}.egress.dns: a resolver stands twice"
    );

  hundredths = cpus: builtins.floor (cpus * 100 + 0.5);
  limitFaults =
    name:
    let
      cpus = tenants.${name}.limits.cpus;
      rest = cpus * 100 - hundredths cpus;
    in
    when (cpus != null && (hundredths cpus < 10 || hundredths cpus > 6400 || rest > 0.000001 || rest < -0.000001))
      "${at name}.limits.cpus: ${toString cpus} is not from 0.1 to 64 in hundredths";

  modelFaults =
    name:
    let
      models = if tenants.${name}.models == null then [ ] else tenants.${name}.models;
      isModel = id: builtins.match "[A-Za-z0-9._:/-]{1,64}" id != null;
    in
    when (builtins.length models > 32) "${at name}.models: more than 32"
    ++ map (id: "${at name}.models: ${quote id} is not the id of a model") (
      builtins.filter (id: !isModel id) models
    )
    ++ when (builtins.length models != builtins.length (builtins.attrNames (builtins.groupBy (x: x) models)))
      "${at name}.models: one stands twice";

  mcpFaults =
    name:
    let
      ids = tenants.${name}.mcp;
    in
    when (builtins.length ids > 32) "${at name}.mcp: more than 32"
    ++ when (builtins.length ids != builtins.length (builtins.attrNames (builtins.groupBy (x: x) ids)))
      "${at name}.mcp: one stands twice";

  # -- what becomes of it --

  present = set: builtins.removeAttrs set (builtins.filter (key: set.${key} == null) (builtins.attrNames set));
  nonEmpty = set: if set == { } then null else set;

  entry =
    name:
    let
      t = tenants.${name};
    in
    present {
      inherit (t) id models approvals;
      inherit name;
      workspaceRoot = t.workspace;
      credentials = map (c: {
        inherit (c) id;
        tokenFile = "${secretDirectory}/${c.id}";
      }) (credentials name)
      ++ map (c: {
        inherit (c) id;
        tokenHash = c.value;
      }) (hashes name);
      egress = present {
        inherit (t.egress) mode dns;
        allow = if t.egress.mode == "allow" then map present t.egress.allow else null;
      };
      limits = nonEmpty (present t.limits);
      mcp = if t.mcp == [ ] then null else t.mcp;
    };

  # A number of the file system's, which knows nothing of names; 0 is taken.
  project =
    name:
    (builtins.fromTOML "n = 0x${builtins.substring 0 7 (builtins.hashString "sha256" tenants.${name}.id)}").n
    + 1048576;

  kib = {
    M = 1024;
    G = 1024 * 1024;
    T = 1024 * 1024 * 1024;
  };
  quota =
    name:
    let
      found = builtins.match "([0-9]+)([MGT])" tenants.${name}.diskQuota;
    in
    if tenants.${name}.diskQuota == null then
      0
    else
      builtins.fromJSON (builtins.elemAt found 0) * kib.${builtins.elemAt found 1};

  # One fact a line, in fields that end with tabs; none of them can hold one.
  tab = "\t";
  bound = name: "${toString (project name)}${tab}${toString (quota name)}";
  lines =
    name:
    [
      "workspace${tab}${bound name}${tab}${workspace name}"
      "home${tab}${bound name}${tab}${stateDirectory}/tenants/${tenants.${name}.id}/state"
    ]
    ++ map (c: "secret${tab}${c.id}${tab}token of ${name}${tab}${c.value}") (credentials name);
in
{
  faults =
    when (builtins.length names > 4096) "services.cloister.tenants: more than 4,096"
    ++ each nameFaults
    ++ each workspaceFaults
    ++ overlaps
    ++ each credentialFaults
    ++ each egressFaults
    ++ each limitFaults
    ++ each modelFaults
    ++ each mcpFaults
    ++ duplicates "the same as" (
      map (name: {
        key = tenants.${name}.id;
        at = "${at name}.id";
      }) names
    )
    ++ duplicates "the same token as" (each (name: map (c: { key = c.value; inherit (c) at; }) (hashes name)))
    ++ duplicates "the same file as" (
      each (name: map (c: { key = c.value; inherit (c) at; }) (credentials name))
    )
    ++ duplicates "by chance given the same quota project as" (
      map (name: {
        key = toString (project name);
        at = at name;
      }) (builtins.filter (name: tenants.${name}.diskQuota != null) names)
    );

  registry = builtins.toJSON {
    version = 1;
    tenants = map entry names;
  };

  list = builtins.concatStringsSep "" (map (line: "${line}\n") (each lines));
}
