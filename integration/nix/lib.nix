# A stand-in for what Cloister's Nix files use of nixpkgs' lib: a module system that is as
# strict as the real one about unknown options, types, missing and conflicting values, and a
# handful of functions. Its complaints have the words of the real one, so that the same tests
# hold with both.
let
  inherit (builtins)
    all
    any
    attrNames
    concatLists
    concatStringsSep
    elem
    elemAt
    filter
    foldl'
    head
    isAttrs
    isBool
    isFloat
    isFunction
    isInt
    isList
    isString
    length
    listToAttrs
    mapAttrs
    tail
    toJSON
    typeOf
    ;

  isDerivation = value: isAttrs value && value.type or null == "derivation";
  isPath = value: typeOf value == "path";
  nameValuePair = name: value: { inherit name value; };
  mapAttrs' = f: set: listToAttrs (map (name: f name set.${name}) (attrNames set));
  filterAttrs =
    predicate: set: removeAttrs set (filter (name: !predicate name set.${name}) (attrNames set));
  unique = foldl' (list: value: if elem value list then list else list ++ [ value ]) [ ];
  showOption = concatStringsSep ".";
  splitVersion = version: filter isString (builtins.split "\\." version);

  # -- properties: mkIf and the like around a definition ------------------------------

  property = value: if isAttrs value then value._type or null else null;
  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkMerge = contents: {
    _type = "merge";
    inherit contents;
  };
  mkOverride = priority: content: {
    _type = "override";
    inherit priority content;
  };

  # A definition of many options as definitions of each, without looking at conditions.
  push =
    value:
    if property value == "if" then
      map (mapAttrs (_: mkIf value.condition)) (push value.content)
    else if property value == "merge" then
      concatLists (map push value.contents)
    else if property value == "override" then
      map (mapAttrs (_: mkOverride value.priority)) (push value.content)
    else
      [ value ];

  # A definition of one option as { value; priority; }, none when its condition is false.
  discharge =
    priority: value:
    if property value == "if" then
      (
        if isBool value.condition then
          (if value.condition then discharge priority value.content else [ ])
        else
          throw "mkIf called with a non-Boolean condition"
      )
    else if property value == "merge" then
      concatLists (map (discharge priority) value.contents)
    else if property value == "override" then
      discharge value.priority value.content
    else
      [ { inherit value priority; } ];

  strongest =
    defs:
    let
      best = foldl' (low: d: if d.priority < low then d.priority else low) 9999 defs;
    in
    map (d: d.value) (filter (d: d.priority == best) defs);

  # -- types: check one value; merge those of one option --------------------------------

  mkType = name: check: merge: {
    _type = "type";
    inherit name check merge;
  };

  mergeOne =
    loc: values:
    if all (value: value == head values) values then
      head values
    else
      throw "The option `${showOption loc}' has conflicting definition values: ${concatStringsSep ", " (map toJSON values)}";

  simple = name: check: mkType name check mergeOne;

  checked =
    type: loc: values:
    let
      bad = filter (value: !type.check value) values;
    in
    if bad == [ ] then
      type.merge loc values
    else
      throw "A definition for option `${showOption loc}' is not of type `${type.name}'. Definition values: ${typeOf (head bad)}";

  mergeDefinitions =
    type: loc: definitions:
    let
      values = strongest (concatLists (map (discharge 100) definitions));
    in
    {
      defined = values != [ ];
      value = checked type loc values;
    };

  between =
    low: high:
    simple "integer between ${toString low} and ${toString high} (both inclusive)" (
      value: isInt value && value >= low && value <= high
    );

  types = rec {
    bool = simple "boolean" isBool;
    int = simple "signed integer" isInt;
    ints = { inherit between; };
    port = between 0 65535;
    number = simple "signed integer or floating point number" (value: isInt value || isFloat value);
    str = simple "string" isString;
    strMatching =
      pattern:
      simple "string matching the pattern ${pattern}" (
        value: isString value && builtins.match pattern value != null
      );
    lines = mkType "strings concatenated with \"\\n\"" isString (_: concatStringsSep "\n");
    enum = values: simple "one of ${toJSON values}" (value: elem value values);
    path = simple "absolute path" (
      value: (isPath value || isString value || isDerivation value) && builtins.substring 0 1 "${value}" == "/"
    );
    package = mkType "package" isDerivation (_: head);
    unspecified = mkType "unspecified value" (_: true) mergeOne;

    nullOr =
      type:
      mkType "null or ${type.name}" (value: value == null || type.check value) (
        loc: values: if all (value: value == null) values then null else type.merge loc values
      );
    either =
      a: b:
      mkType "${a.name} or ${b.name}" (value: a.check value || b.check value) (
        loc: values: if all a.check values then a.merge loc values else b.merge loc values
      );
    oneOf = list: foldl' either (head list) (tail list);
    listOf =
      type:
      mkType "list of ${type.name}" isList (
        loc: values: map (value: checked type (loc ++ [ "*" ]) [ value ]) (concatLists values)
      );
    attrsOf =
      type:
      mkType "attribute set of ${type.name}" isAttrs (
        loc: values:
        let
          sets = concatLists (map push values);
          merged = name: mergeDefinitions type (loc ++ [ name ]) (
            map (set: set.${name}) (filter (set: set ? ${name}) sets)
          );
          all' = listToAttrs (map (name: nameValuePair name (merged name)) (unique (concatLists (map attrNames sets))));
        in
        mapAttrs (_: m: m.value) (filterAttrs (_: m: m.defined) all')
      );
    submodule =
      module:
      mkType "submodule" (value: isAttrs value || isFunction value) (
        loc: values:
        (evaluate {
          modules = [ module ] ++ values;
          prefix = loc;
          args.name = elemAt loc (length loc - 1);
        }).config
      );
  };

  mkOption =
    declaration:
    let
      unknown = attrNames (
        removeAttrs declaration [
          "type"
          "default"
          "defaultText"
          "description"
          "example"
        ]
      );
    in
    if unknown != [ ] then
      throw "mkOption: unknown arguments ${toJSON unknown}"
    else if !(declaration ? description) || declaration.type._type or null != "type" then
      throw "mkOption: needs a type and a description"
    else
      declaration // { _type = "option"; };

  # -- modules --------------------------------------------------------------------------

  # Modules with all that they import, each as { options; config; }.
  collect =
    args: module:
    let
      value = if isFunction module || isAttrs module then module else import module;
      body = if isFunction value then value args else value;
      long = body ? options || body ? config;
      unknown = attrNames (
        removeAttrs body [
          "imports"
          "options"
          "config"
        ]
      );
    in
    if long && unknown != [ ] then
      throw "Module has an unsupported attribute `${head unknown}'. This is caused by introducing a top-level `config' or `options' attribute."
    else
      concatLists (map (collect args) (body.imports or [ ]))
      ++ [
        {
          options = body.options or { };
          config = if long then body.config or { } else removeAttrs body [ "imports" ];
        }
      ];

  isOption = value: property value == "option";

  mergeDeclarations =
    loc: trees:
    mapAttrs (
      name: values:
      if length values == 1 && isOption (head values) then
        head values
      else if any isOption values then
        throw "The option `${showOption (loc ++ [ name ])}' is already declared."
      else
        mergeDeclarations (loc ++ [ name ]) values
    ) (zip trees);

  # A set of lists from a list of sets.
  zip =
    sets:
    listToAttrs (
      map (name: nameValuePair name (map (set: set.${name}) (filter (set: set ? ${name}) sets))) (
        unique (concatLists (map attrNames sets))
      )
    );

  # The values of a tree of options.
  valuesOf =
    loc: declarations: definitions:
    let
      defined = zip (concatLists (map push definitions));
    in
    mapAttrs (
      name: declaration:
      let
        at = loc ++ [ name ];
        merged = mergeDefinitions declaration.type at (defined.${name} or [ ]);
      in
      if !isOption declaration then
        valuesOf at declaration (defined.${name} or [ ])
      else if merged.defined then
        merged.value
      else if declaration ? default then
        checked declaration.type at [ declaration.default ]
      else
        throw "The option `${showOption at}' was accessed but has no value defined. Try setting the option."
    ) declarations;

  # The names of what is defined and was never declared.
  strangers =
    loc: declarations: definitions:
    let
      defined = zip (concatLists (map push definitions));
    in
    concatLists (
      map (
        name:
        if !(declarations ? ${name}) then
          [ (showOption (loc ++ [ name ])) ]
        else if isOption declarations.${name} then
          [ ]
        else
          strangers (loc ++ [ name ]) declarations.${name} defined.${name}
      ) (attrNames defined)
    );

  evaluate =
    {
      modules,
      args ? { },
      prefix ? [ ],
    }:
    let
      collected = concatLists (map (collect (args // { inherit config lib; })) modules);
      declarations = mergeDeclarations prefix (map (module: module.options) collected);
      definitions = map (module: module.config) collected;
      config = valuesOf prefix declarations definitions;
      unknown = strangers prefix declarations definitions;
    in
    {
      options = declarations;
      config =
        if unknown == [ ] then config else throw "The option `${head unknown}' does not exist.";
    };

  lib = {
    inherit
      concatStringsSep
      elemAt
      filter
      filterAttrs
      length
      mapAttrs'
      mkIf
      mkMerge
      mkOption
      mkOverride
      nameValuePair
      optional
      optionals
      types
      ;
    concatMap = f: list: concatLists (map f list);
    mkDefault = mkOverride 1000;
    mkForce = mkOverride 50;
    mkEnableOption =
      name:
      mkOption {
        type = types.bool;
        default = false;
        description = "Whether to enable ${name}.";
      };
    evalModules =
      { modules, specialArgs }:
      evaluate {
        inherit modules;
        args = specialArgs;
      };
    literalExpression = text: { _type = "literalExpression"; inherit text; };
    optionalString = condition: text: if condition then text else "";
    genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
    hasInfix = infix: text: length (builtins.split (escape infix) text) > 1;
    min = a: b: if a < b then a else b;
    versions.major = version: head (splitVersion version);
    licenses.mit.spdxId = "MIT";
    fileset = {
      unions = files: files;
      # All there; what is in them is for tests that copy them.
      toSource =
        { root, fileset }:
        if all builtins.pathExists fileset then
          builtins.toFile "source" (toJSON (map toString ([ root ] ++ fileset)))
        else
          throw "fileset.toSource: something of ${toJSON (map toString fileset)} does not exist";
    };
  };

  escape = builtins.replaceStrings [ "." "[" "*" ] [ "\\." "\\[" "\\*" ];
  optional = condition: value: if condition then [ value ] else [ ];
  optionals = condition: list: if condition then list else [ ];
in
lib
