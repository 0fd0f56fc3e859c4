# Declared models as what the machine gets: the daemon's file of models, and the lines from
# which a privileged step makes copies of their keys. Builtins only.
#
# As in tenants.nix, "faults" has one sentence for each that can be known of here; the daemon
# finds the others when it starts.
{
  models, # id to model, as declared
  secretDirectory, # as in endpoint.nix
  secretFaults,
  places,
}:

let
  # Copies are named by the file, and not by the model: sessions keep to an account, and two
  # models with one file are of one account.
  endpoint = import ./endpoint.nix {
    option = "models";
    prefix = "model";
    keyName = "apiKeyFile";
    urlName = "baseUrl";
    declared = models;
    inherit secretDirectory secretFaults places;
  };
  inherit (endpoint) ids say when each present;

  faultsOf =
    id:
    let
      m = models.${id};
    in
    when (builtins.match "[A-Za-z0-9._:/-]{1,64}" id == null)
      (say id ": an id is 1 to 64 letters, digits and -._:/")
    ++ when (id == "demo") (say id ": demo is the built-in model")
    ++ when (m.maxOutputTokens > m.contextWindow) (say id ".maxOutputTokens: is more than contextWindow")
    ++ when (builtins.length (builtins.attrNames m.headers) > 16) (say id ".headers: more than 16")
    ++ endpoint.faults id;
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
          apiKeyFile = endpoint.keyFile id;
          headers = if m.headers == { } then null else m.headers;
          prices = if m.prices == null then null else present m.prices;
        }
      )
    ) ids;
  };

  list = endpoint.list "key of models";
  hasKeys = endpoint.keyed != [ ];
}
