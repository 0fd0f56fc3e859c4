# A unit of service.nix as the text of a unit file.
#
#   nix-instantiate --eval --strict --json nix/render.nix                 the default
#   ... --arg settings '{ port = 80; }'                                   another
{
  settings ? { },
}:

let
  unit = import ./service.nix settings;

  text =
    value:
    if builtins.isBool value then
      (if value then "true" else "false")
    else
      toString value;

  lines =
    name: value:
    if builtins.isList value then map (v: "${name}=${text v}") value else [ "${name}=${text value}" ];

  section =
    name:
    [
      ""
      "[${name}]"
    ]
    ++ builtins.concatLists (
      map (key: lines key unit.${name}.${key}) (builtins.attrNames unit.${name})
    );
in
builtins.concatStringsSep "\n" (
  [ "# Made by \"make unit\" from nix/service.nix, which says why each line is here." ]
  ++ section "Unit"
  ++ section "Service"
  ++ section "Install"
  ++ [ "" ]
)
