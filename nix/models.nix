# Declared models as what the machine gets: the daemon's file of models, and the lines from
# which a privileged step makes copies of their keys. Builtins only.
#
# As in tenants.nix, "faults" has one sentence for each that can be known of here; the daemon
# finds the others when it starts.
{
  models, # id to model, as declared
  secretDirectory, # where the copies go, absolute
  secretFaults, # name of an option, path: what is wrong with a secret's path
  places, # directories in which no key may lie
}:

let
  inherit (import ./paths.nix) inside;

  ids = builtins.attrNames models;
  at = id: "models.${builtins.toJSON id}";
  say = id: text: "services.cloister.${at id}${text}";
  when = condition: text: if condition then [ text ] else [ ];
  each = f: builtins.concatLists (map f ids);
  present = set: removeAttrs set (builtins.filter (key: set.${key} == null) (builtins.attrNames set));

  key = id: models.${id}.apiKeyFile;
  keyed = builtins.filter (id: key id != null) ids;
  # By the file, and not by the model: sessions keep to an account, and two models with one
  # file are of one account.
  copy = file: "model-${builtins.substring 0 32 (builtins.hashString "sha256" file)}";
  files = builtins.attrNames (builtins.groupBy (id: builtins.unsafeDiscardStringContext (key id)) keyed);

  local = url: builtins.match "http://(127\\.0\\.0\\.1|localhost|\\[::1])([:/].*)?" url != null;
  secure = url: builtins.match "https://.+" url != null;
  plain = url: builtins.match "http://.+" url != null;

  keyFaults =
    id:
    secretFaults "${at id}.apiKeyFile" (key id)
    ++ map (dir: say id ".apiKeyFile: ${key id} lies inside ${dir}, which is no place for secrets") (
      builtins.filter (inside (key id)) places
    );

  faultsOf =
    id:
    let
      m = models.${id};
    in
    when (builtins.match "[A-Za-z0-9._:/-]{1,64}" id == null)
      (say id ": an id is 1 to 64 letters, digits and -._:/")
    ++ when (id == "demo") (say id ": demo is the built-in model")
    ++ when (!secure m.baseUrl && !plain m.baseUrl)
      (say id ".baseUrl: ${builtins.toJSON m.baseUrl} begins neither with https:// nor with http://")
    ++ when (plain m.baseUrl && !local m.baseUrl && m.apiKeyFile != null)
      (say id ".baseUrl: would carry the key unencrypted; use https://")
    ++ when (m.maxOutputTokens > m.contextWindow) (say id ".maxOutputTokens: is more than contextWindow")
    ++ when (builtins.length (builtins.attrNames m.headers) > 16) (say id ".headers: more than 16")
    ++ (if m.apiKeyFile == null then [ ] else keyFaults id);
in
{
  faults = when (builtins.length ids > 64) "services.cloister.models: more than 64" ++ each faultsOf;

  file = builtins.toJSON {
    version = 1;
    models = map (
      id:
      let
        m = models.${id};
      in
      present (
        m
        // {
          inherit id;
          apiKeyFile = if m.apiKeyFile == null then null else "${secretDirectory}/${copy m.apiKeyFile}";
          headers = if m.headers == { } then null else m.headers;
          prices = if m.prices == null then null else present m.prices;
        }
      )
    ) ids;
  };

  # As tenants.nix has them.
  list = builtins.concatStringsSep "" (
    map (file: "secret\t${copy file}\tkey of models\t${file}\n") files
  );
  hasKeys = keyed != [ ];
}
