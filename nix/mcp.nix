# Declared MCP servers as what the machine gets: the daemon's file of them, and the lines from
# which a privileged step makes copies of their tokens; as models.nix. Builtins only.
{
  mcp, # id to server, as declared
  secretDirectory, # as in endpoint.nix
  secretFaults,
  places,
}:

let
  endpoint = import ./endpoint.nix {
    option = "mcp";
    prefix = "mcp";
    keyName = "tokenFile";
    urlName = "url";
    declared = mcp;
    inherit secretDirectory secretFaults places;
  };
  inherit (endpoint) ids say when each present;

  faultsOf =
    id:
    when (builtins.match "[a-z][a-z0-9-]{0,23}" id == null)
      (say id ": an id is 1 to 24 of a-z, 0-9 and -, and starts with a letter")
    ++ when (mcp.${id}.tokenHeader != null && mcp.${id}.tokenFile == null)
      (say id ".tokenHeader: there is no tokenFile")
    ++ endpoint.faults id;
in
{
  faults = when (builtins.length ids > 32) "services.cloister.mcp: more than 32" ++ each faultsOf;

  file = builtins.toJSON {
    version = 1;
    servers = map (
      id:
      present (
        mcp.${id}
        // {
          inherit id;
          tokenFile = endpoint.keyFile id;
        }
      )
    ) ids;
  };

  list = endpoint.list "token of MCP servers";
  hasKeys = endpoint.keyed != [ ];
}
