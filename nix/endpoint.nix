# What models.nix and mcp.nix have in common: places with a key that is a file. Builtins only.
{
  option, # "models" or "mcp"
  prefix, # of the names of copies
  keyName, # the name of the option that is the key's file
  urlName, # likewise, of the URL
  declared, # id to entry
  secretDirectory, # where the copies go, absolute
  secretFaults, # name of an option, path: what is wrong with a secret's path
  places, # directories in which no key may lie
}:

let
  inherit (import ./paths.nix) inside;

  local = url: builtins.match "http://(127\\.0\\.0\\.1|localhost|\\[::1])([:/].*)?" url != null;
  secure = url: builtins.match "https://.+" url != null;
  plain = url: builtins.match "http://.+" url != null;

  key = id: declared.${id}.${keyName};
  url = id: declared.${id}.${urlName};
  copy = file: "${prefix}-${builtins.substring 0 32 (builtins.hashString "sha256" file)}";
in
rec {
  ids = builtins.attrNames declared;
  at = id: "${option}.${builtins.toJSON id}";
  say = id: text: "services.cloister.${at id}${text}";
  when = condition: text: if condition then [ text ] else [ ];
  each = f: builtins.concatLists (map f ids);
  present = set: removeAttrs set (builtins.filter (name: set.${name} == null) (builtins.attrNames set));

  faults =
    id:
    when (!secure (url id) && !plain (url id))
      (say id ".${urlName}: ${builtins.toJSON (url id)} begins neither with https:// nor with http://")
    ++ when (plain (url id) && !local (url id) && key id != null)
      (say id ".${urlName}: would carry the key unencrypted; use https://")
    ++ (
      if key id == null then
        [ ]
      else
        secretFaults "${at id}.${keyName}" (key id)
        ++ map (dir: say id ".${keyName}: ${key id} lies inside ${dir}, which is no place for secrets") (
          builtins.filter (inside (key id)) places
        )
    );

  keyFile = id: if key id == null then null else "${secretDirectory}/${copy (key id)}";

  # As tenants.nix has them. One copy of a file, whoever uses it.
  list =
    what:
    builtins.concatStringsSep "" (
      map (file: "secret\t${copy file}\t${what}\t${file}\n") (
        builtins.attrNames (builtins.groupBy (id: builtins.unsafeDiscardStringContext (key id)) keyed)
      )
    );
  keyed = builtins.filter (id: key id != null) ids;
}
