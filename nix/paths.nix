# What a path, a network and an address may look like. Builtins only.
rec {
  # The components of a path; nothing for "/".
  components = path: builtins.filter (part: builtins.isString part) (builtins.split "/" path);

  # null, or what is wrong with a path that root and the daemon will walk.
  pathFault =
    path:
    if builtins.match "[^[:cntrl:]]*" path == null then
      "has a control character"
    else if builtins.match "/.*" path == null then
      "is not an absolute path"
    else if path == "/" then
      "is the root directory"
    else if builtins.match ".*/" path != null then
      "ends with a slash"
    else if builtins.match ".*//.*" path != null then
      "has a double slash"
    else if builtins.any (part: part == "." || part == "..") (components path) then
      "has \".\" or \"..\" in it; write the path that it leads to"
    else if builtins.match ".*%.*" path != null then
      "has % in it, which systemd would replace"
    else
      null;

  # The same for one that becomes part of the unit, where blanks separate.
  unitPathFault =
    path:
    if pathFault path != null then
      pathFault path
    else if builtins.match "[^ \"'\\]*" path == null then
      "has a blank, a quote or a backslash in it"
    else
      null;

  # path is dir or lies below it; both canonical.
  inside = path: dir: path == dir || hasPrefix "${dir}/" path;

  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;

  # What is in the store is readable for everybody, and copied to wherever the system is.
  inStore = path: inside path builtins.storeDir || builtins.getContext path != { };

  # -- addresses: one spelling each --

  octet = "(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])";
  octets =
    text:
    let
      found = builtins.match "${octet}\\.${octet}\\.${octet}\\.${octet}" text;
    in
    if found == null then null else map builtins.fromJSON found;

  isAddress = text: octets text != null || isAddress6 text;

  # Not every wrong one is found: the daemon has the last word.
  isAddress6 =
    text:
    builtins.match "[0-9a-f:]*:[0-9a-f:]*(:${octet}(\\.${octet}){3})?" text != null
    && builtins.match ".*:::.*" text == null
    && builtins.stringLength text >= 2;

  isLoopback =
    text: text == "::1" || (octets text != null && builtins.head (octets text) == 127);

  # null, or what is wrong with an IPv4 network.
  networkFault =
    text:
    let
      found = builtins.match "([0-9.]+)/([0-9]|[12][0-9]|3[0-2])" text;
      address = if found == null then null else octets (builtins.elemAt found 0);
      number = builtins.foldl' (sum: part: sum * 256 + part) 0 address;
      # 2^(32 - bits), the number of its addresses.
      size = power (32 - builtins.fromJSON (builtins.elemAt found 1));
    in
    if address == null then
      "is not an IPv4 network such as 198.51.100.0/24"
    else if number != number / size * size then
      "has bits below its prefix"
    else
      null;

  power = n: if n == 0 then 1 else 2 * power (n - 1);
}
