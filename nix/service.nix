# The systemd unit of cloisterd, from settings to an attribute set: { Unit, Service, Install }.
#
# Pure: builtins only, no nixpkgs, no store. A NixOS module hands the sections to systemd;
# render.nix writes them as text for every other system (cloister.service, checked in).
# Values are as in NixOS: a string, a number, a truth value, or a list, which is one line
# each in that order. What a unit file gives a meaning (% $ " \) is quoted here.
#
# The text does not depend on the tenants: they are in the registry, which the daemon reads.
#
# The hardening is layered: the daemon confines its own server process, and each sandbox
# lives behind gVisor and namespaces of its own. What the unit takes away is taken from all
# of them, the runner included, which makes user, mount, pid, ipc, uts and network namespaces
# without any capability. Directives that would break that are named where one would look
# for them, each with the reason.
settings:

let
  defaults = {
    description = "Cloister: sandboxes for agents behind an HTTP API";

    user = "cloister";
    group = "cloister";

    # Programs and the sandboxes' root filesystem: owned by root, writable by nobody else.
    programs = "/usr/lib/cloister";
    rootfs = "/usr/lib/cloister/rootfs";
    # Further directories for executables, on systems where /usr/bin holds none.
    path = [ ];

    tenants = "/etc/cloister/tenants.json";
    # Below /var/lib; the daemon's database and the tenants' guest state.
    stateDirectory = "cloister";
    # The only places outside the state directory that can be written: workspaces.
    workspaceRoots = [ "/srv/cloister" ];

    boundary = "service";
    host = "127.0.0.1";
    port = 4096;
    drainSeconds = 25;
    # More of "cloisterd serve --help", without the dashes: { "max-running-turns" = 32; }. One
    # that may stand more than once has a list, one without a value true or false.
    options = { };
    # A command of root's, as a list of words: run before the daemon starts, with the last word
    # "start", and before it reads its registry again, with "reload". When it fails, so does
    # that.
    prepare = [ ];

    # Units that start before it where they are wanted too, such as a database server.
    after = [ ];
    # Places in /run that it sees besides those that every one must, such as the directory of a
    # server's socket; with "-" before one that may not be there.
    visible = [ ];

    # Name to file: what the daemon finds as $CREDENTIALS_DIRECTORY/name.
    credentials = { };
    environmentFiles = [ ];

    # Of the whole service: daemon, PostgreSQL and all sandboxes together.
    memoryMax = "80%";
    memoryLow = "512M";
    tasksMax = 32768;
    openFiles = 65536;
  };

  unknown = builtins.filter (name: !(builtins.hasAttr name defaults)) (builtins.attrNames settings);

  s =
    if unknown != [ ] then
      throw "service.nix: unknown settings: ${builtins.concatStringsSep ", " unknown}"
    else
      defaults // settings;

  # A line of a unit file ends at a newline, whatever the quotes.
  oneLine =
    text:
    if builtins.match ".*[\n\r].*" text != null then
      throw "service.nix: line break in ${builtins.toJSON text}"
    else
      text;

  # A value in which nothing is a specifier.
  plain = text: builtins.replaceStrings [ "%" ] [ "%%" ] (oneLine (toString text));

  # A path in a list of paths, where blanks separate.
  path =
    text:
    if builtins.match "/[^ \t\"'\\]*" (oneLine text) == null then
      throw "service.nix: ${builtins.toJSON text} is not an absolute path without blanks and quotes"
    else
      plain text;

  # One that need not be there has "-" before it.
  place =
    text:
    if builtins.match "-.*" text == null then
      path text
    else
      "-${path (builtins.substring 1 (builtins.stringLength text) text)}";

  # One word of a command line, whatever is in it.
  word =
    value:
    let
      text = builtins.replaceStrings [ "\\" "\"" "$" ] [ "\\\\" "\\\"" "$$" ] (plain value);
    in
    if builtins.match "[A-Za-z0-9_/.:=,+%@-]+" text != null then text else "\"${text}\"";

  option =
    name: value:
    if builtins.isBool value then
      if value then [ (word "--${name}") ] else [ ]
    else
      builtins.concatLists (
        map (one: [
          (word "--${name}")
          (word one)
        ]) (if builtins.isList value then value else [ value ])
      );

  # "+": with root's powers and without the unit's walls, but for its bind mounts and file
  # systems in memory, which systemd makes for every command.
  prepare =
    phase:
    if s.prepare == [ ] then
      [ ]
    else
      [
        (builtins.concatStringsSep " " (
          [ "+${path (builtins.head s.prepare)}" ]
          ++ map word (builtins.tail s.prepare ++ [ phase ])
        ))
      ];

  stateDirectory = "/var/lib/${s.stateDirectory}";

  command = builtins.concatStringsSep " " (
    [
      (path "${s.programs}/cloisterd")
      "serve"
    ]
    ++ builtins.concatLists (
      [
        (option "tenants" s.tenants)
        (option "state" stateDirectory)
        (option "rootfs" s.rootfs)
        (option "boundary" s.boundary)
        (option "host" s.host)
        (option "port" s.port)
        (option "drain-seconds" s.drainSeconds)
      ]
      ++ map (name: option name s.options.${name}) (builtins.attrNames s.options)
    )
  );

  optional = name: value: if value == [ ] then { } else { ${name} = value; };
in
{
  Unit = {
    # What systemctl and the journal call it.
    Description = plain s.description;
    # Sandboxes need the network, not the daemon: it starts without.
    After = [ "network-online.target" ] ++ map plain s.after;
    Wants = [ "network-online.target" ] ++ map plain s.after;
    # A service that cannot stay up is left down after five tries in a minute, so that its
    # first words in the journal are not buried.
    StartLimitIntervalSec = 60;
    StartLimitBurst = 5;
  };

  Service = {
    # -- how it runs --

    # A program and options in plain words; no shell reads them.
    ExecStart = command;
    # Waits; its faults are in the journal, and with any of them the reload fails.
    ExecReload = prepare "reload" ++ [
      "${path "${s.programs}/cloisterd"} reload ${builtins.concatStringsSep " " (option "state" stateDirectory)}"
    ];
    # READY=1 comes from the launcher once the server accepts connections: what is ordered
    # after this unit finds it answering. Only the main process may speak; NOTIFY_SOCKET is
    # taken out of the environment before anything else is started. No WatchdogSec: the
    # launcher itself ends, and with it the unit, when the server or PostgreSQL does.
    Type = "notify";
    NotifyAccess = "main";
    # The first start creates a database cluster.
    TimeoutStartSec = 180;
    # What crashed comes back; what was stopped stays down.
    Restart = "on-failure";
    RestartSec = 2;
    # Exit status 2 is a fault in the registry or the options; trying again would not help.
    RestartPreventExitStatus = 2;

    # -- how it ends --

    # SIGTERM goes to the launcher alone, which drains: were it sent to all, the sandboxes
    # would die under the turns that are allowed to finish. What is left in the cgroup after
    # the launcher has ended, or after the time is up, is killed.
    KillMode = "mixed";
    # Longer than the drain and the daemon's own deadlines for the ends of its parts, so that
    # these decide.
    TimeoutStopSec = s.drainSeconds + 60;
    # A sandbox that is killed for its memory ends alone, not the service. (The default of a
    # delegated unit, said aloud because everything depends on it.)
    OOMPolicy = "continue";

    # -- who it is, what it holds --

    # Its own: whoever else were it could reach sandboxes and the database.
    User = plain s.user;
    Group = plain s.group;
    # /var/lib/...: created for the user, closed to all others.
    StateDirectory = plain s.stateDirectory;
    StateDirectoryMode = "0700";
    # Nothing that the daemon or a sandbox writes is readable by other users of the host.
    UMask = "0077";
    # No capability, ever, also not from a file: what namespaces need comes from user
    # namespaces. (A new user namespace has a bounding set of its own.)
    NoNewPrivileges = true;
    CapabilityBoundingSet = "";
    AmbientCapabilities = "";
    # No session keyring to inherit from root; no System V objects left behind, none shared.
    KeyringMode = "private";
    RemoveIPC = true;
    PrivateIPC = true;
    # Left out: DynamicUser, which works, but gives the user another number some day: the
    # database, workspaces and files of secrets are owned by one that must stay.
    # Left out: SecureBits. Without capabilities, and no way to gain one, no root is here to be
    # made powerless; the kernel sets the bits back in each new user namespace.

    # -- cgroups --

    # The daemon makes a leaf for each sandbox, with limits; the limits of the unit itself
    # stay out of its reach. No other controller is of use to it.
    Delegate = "cpu memory pids";
    # A cgroup with controllers enabled for its children may not hold processes, so the
    # daemon lives in a child. systemd before 254 ignores this line; the daemon then moves.
    DelegateSubgroup = "supervisor";
    # Bounds of everything together, so that tenants cannot take the machine: memory, tasks
    # (a sandbox takes about 33 and 2.2 for each of its processes) and descriptors.
    MemoryMax = s.memoryMax;
    TasksMax = s.tasksMax;
    LimitNOFILE = s.openFiles;
    # What the supervisor is protected by must be protected here too.
    MemoryLow = s.memoryLow;
    # A core file would hold tokens and tenants' data.
    LimitCORE = 0;
    # Left out: ProtectControlGroups makes the delegated subtree read-only (EROFS), and its
    # "private" form does not work together with DelegateSubgroup.

    # -- files --

    # The whole tree is read-only but for the state directory and the workspaces.
    ProtectSystem = "strict";
    ReadWritePaths = map path s.workspaceRoots ++ [ "/sys/fs/cgroup" ];
    # The useful half of ProtectKernelTunables.
    ReadOnlyPaths = [ "/sys" ];
    # What people keep in their home directories, keys above all, is not there. A workspace in
    # one is therefore not possible.
    ProtectHome = true;
    # Nothing that other services leave in /tmp is met, and nothing is left there.
    PrivateTmp = true;
    # Of no use to it: kernels, other disks, and the resolver's calls beside its files.
    InaccessiblePaths = [
      "-/boot"
      "-/media"
      "-/mnt"
      "-/run/systemd/resolve/io.systemd.Resolve"
      "-/run/systemd/resolve/io.systemd.Resolve.Monitor"
    ];
    # What the machine offers to all its users through local sockets (the system bus, journal,
    # resolver, other databases, container engines) lies in /run, and the server, which must
    # reach PostgreSQL's socket, is not kept from others by its own walls. So /run is empty but
    # for the service manager's ear and what /etc/resolv.conf may be a link to.
    TemporaryFileSystem = "/run:ro,mode=0755";
    BindReadOnlyPaths = [
      "/run/systemd/notify"
      "-/run/systemd/resolve"
      "-/run/resolvconf"
      "-/run/NetworkManager"
      "-/run/current-system"
    ]
    ++ map place s.visible;
    # Mounts of the unit do not show up elsewhere.
    PrivateMounts = true;
    # A setuid file in a workspace would belong to the service user on the host. Turns
    # openat2 into ENOSYS: the programs walk paths with O_NOFOLLOW then.
    RestrictSUIDSGID = true;
    # Left out: NoExecPaths and ExecPaths, which work. All that the service can write are
    # workspaces and the state directory, and from these tenants execute what is theirs.
    # Left out: RestrictFileSystems, with which the service does not start on Debian 13
    # (244/BPF); what is mounted in a sandbox, its own walls decide.

    # -- devices --

    # A /dev with nothing in it but null, zero, random and the like, and /dev/net/tun, which
    # slirp4netns opens. All three of these lines are needed for the latter: the private
    # /dev lacks the node, and binding it grants no access.
    PrivateDevices = true;
    BindPaths = [ "/dev/net/tun" ];
    DeviceAllow = "/dev/net/tun rw";
    DevicePolicy = "closed";

    # -- kernel --

    # /usr/lib/modules is hidden; tun, veth and nf_tables are still loaded on demand, by the
    # kernel.
    ProtectKernelModules = true;
    # No setting of the clock that everything else on the machine goes by.
    ProtectClock = true;
    # Only the service's own processes are visible in /proc.
    ProtectProc = "invisible";
    # No user of the host but root and this one exists for it.
    PrivateUsers = true;
    # No other execution domain, whose rarely used code in the kernel would be reached.
    LockPersonality = true;
    # No scheduling before everything else, which could stop the machine.
    RestrictRealtime = true;
    # Left out: ProtectKernelTunables, ProtectKernelLogs and ProtectHostname cover parts of
    # /proc, and the kernel then refuses a new procfs in a sandbox's pid namespace (EPERM).
    # The user owns none of these files, and has no power to set a host name.
    # Left out: ProcSubset=pid hides /proc/sys, and gVisor ends in a panic without
    # /proc/sys/vm/mmap_min_addr even when it is only asked for its version. The server,
    # which faces the network, has a Landlock domain without /proc.
    # Left out: PrivatePIDs, unknown before systemd 257 and not tried with Type=notify. Others'
    # processes are hidden by ProtectProc; a sandbox has a pid namespace of its own.
    # Left out: MemoryDenyWriteExecute breaks gVisor's systrap platform (and JIT compilers
    # of the tenants).
    # Left out: RestrictNamespaces, which cannot look into clone3's arguments and makes it
    # ENOSYS, and without it no process can be born in its sandbox's cgroup.

    # -- network --

    # What runs here needs: local sockets, IPv4 and IPv6 (listener, slirp4netns), netlink
    # (runner), packets (gVisor's network stack reads its veth with it).
    RestrictAddressFamilies = "AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET";
    # A second wall below the sandboxes' own policy, for what no tenant may ever reach:
    # metadata services. A resolver with such an address cannot be used.
    IPAddressDeny = "link-local multicast";
    # Left out: PrivateNetwork, because sandboxes reach the network through this unit's
    # sockets.

    # -- system calls --

    # The filter judges the numbers of this architecture; others are not there.
    SystemCallArchitectures = "native";
    # What services use, mounts, and what the runner and the server confine others and
    # themselves with: ptrace (gVisor's systrap), seccomp, Landlock. The names are single
    # because older versions of systemd have no group for them.
    SystemCallFilter = [
      "@system-service @mount ptrace seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"
      "~@keyring @aio @clock @module @raw-io @reboot @swap @cpu-emulation @obsolete userfaultfd kcmp migrate_pages move_pages name_to_handle_at fsopen fsconfig fsmount fspick remap_file_pages vmsplice"
      "~@memlock @resources personality"
    ];
    # Without this line a refused call kills, and the filter reaches the processes in which
    # gVisor runs the tenants' programs: there its own answer must win.
    SystemCallErrorNumber = "EPERM";
  }
  # Copies of root's files in memory, which this service alone can read.
  // optional "LoadCredential" (
    map (name: "${plain name}:${path s.credentials.${name}}") (builtins.attrNames s.credentials)
  )
  # What the service user has no power to do, and must be there at the start.
  // optional "ExecStartPre" (prepare "start")
  # Read as root, so that they need not be the service user's.
  // optional "EnvironmentFile" (map path s.environmentFiles)
  # Of systems where /usr/bin holds no programs.
  // optional "Environment" (
    if s.path == [ ] then [ ] else [ "PATH=${builtins.concatStringsSep ":" (map path s.path)}" ]
  );

  Install = {
    # With the machine, and without anybody logged in.
    WantedBy = [ "multi-user.target" ];
  };
}
