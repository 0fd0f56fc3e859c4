# Declared models of providers and MCP servers as what the machine gets: { models, mcp }, each
# with the daemon's file of them, and the lines from which a privileged step makes copies of
# their keys. Builtins only.
#
# As in tenants.nix, "faults" has one sentence for each that can be known of here; the daemon
# finds the others when it starts.
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
  # In the same words as daemon/model/models.c.
  mayCarryKey =
    name:
    builtins.match ".*(auth|cookie|credential|key|passw|secret|signature|token).*" (lower name) != null;
  letters = text: builtins.genList (i: builtins.substring i 1 text) 26;
  lower = builtins.replaceStrings (letters "ABCDEFGHIJKLMNOPQRSTUVWXYZ") (letters "abcdefghijklmnopqrstuvwxyz");
  when = condition: text: if condition then [ text ] else [ ];
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
        ++ when (!secure (url id) && !plain (url id))
          (say id ".${urlName}: ${builtins.toJSON (url id)} begins neither with https:// nor with http://")
        ++ when (builtins.match "[^@?#\\]*" (url id) == null)
          (say id ".${urlName}: has a user, a query or a fragment; what is secret belongs in ${keyName}")
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
      in
      when (id == "demo") (say ": demo is the built-in model")
      ++ when (m.maxOutputTokens > m.contextWindow) (say ".maxOutputTokens: is more than contextWindow")
      ++ when (builtins.length (builtins.attrNames m.headers) > 16) (say ".headers: more than 16")
      ++ map (name: say ".headers.${name}: may carry a key, and everybody can read it here; use apiKeyFile") (
        builtins.filter mayCarryKey (builtins.attrNames m.headers)
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
        (say ".tokenHeader: there is no tokenFile");
    fieldsOf = _: { };
  };
}
