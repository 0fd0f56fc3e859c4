# The limits of cloisterd that an operator may set, as "cloisterd serve --help" has them: a
# test compares the two. One with "share" is a part of that other one, and not more.
{
  drainSeconds = {
    option = "drain-seconds";
    min = 0;
    max = 3600;
    default = 25;
    text = "How long running turns may go on when the service stops, in seconds.";
  };
  sandboxIdleSeconds = {
    option = "sandbox-idle-seconds";
    min = 1;
    max = 86400;
    default = 900;
    text = "A sandbox that was idle that many seconds is stopped.";
  };
  maxActiveSandboxes = {
    option = "max-active-sandboxes";
    min = 1;
    max = 4096;
    default = 64;
    text = "Sandboxes that run at once.";
  };
  diskStartMb = {
    option = "disk-start-mb";
    min = 0;
    max = 1048576;
    default = 512;
    text = "No sandbox starts when less is free on the state directory's disk, in MiB.";
  };
  diskEndMb = {
    option = "disk-end-mb";
    min = 0;
    max = 1048576;
    default = 256;
    share = "diskStartMb";
    text = "Below that, sandboxes that write there are ended: the database needs it.";
  };
  diskReserveMb = {
    option = "disk-reserve-mb";
    min = 0;
    max = 65536;
    default = 64;
    text = "Held back in the state directory for the database of a machine that is full, in MiB.";
  };
  maxRunningTurns = {
    option = "max-running-turns";
    min = 1;
    max = 1024;
    default = 16;
    text = "Turns that run at once.";
  };
  maxRunningTurnsPerTenant = {
    option = "max-running-turns-per-tenant";
    min = 1;
    max = 1024;
    default = 4;
    share = "maxRunningTurns";
    text = "Of these, of one tenant.";
  };
  maxQueuedTurns = {
    option = "max-queued-turns";
    min = 1;
    max = 65536;
    default = 256;
    text = "Turns that wait to run.";
  };
  maxQueuedTurnsPerTenant = {
    option = "max-queued-turns-per-tenant";
    min = 1;
    max = 65536;
    default = 64;
    share = "maxQueuedTurns";
    text = "Of these, of one tenant.";
  };
  maxQueuedBytes = {
    option = "max-queued-bytes";
    min = 16777216;
    max = 1073741824;
    default = 83886080;
    text = "Bytes of input of turns that wait to run.";
  };
  maxQueuedBytesPerTenant = {
    option = "max-queued-bytes-per-tenant";
    min = 16777216;
    max = 1073741824;
    default = 41943040;
    share = "maxQueuedBytes";
    text = "Of these, of one tenant.";
  };
  maxWaitingTurnsPerTenant = {
    option = "max-waiting-turns-per-tenant";
    min = 1;
    max = 4096;
    default = 64;
    text = "Turns of one tenant that wait for a person; one more fails.";
  };
  maxTurnBytes = {
    option = "max-turn-bytes";
    min = 65536;
    max = 1073741824;
    default = 16777216;
    text = "Bytes that the model and the tools say in one turn; one that says more fails.";
  };
  maxTurnSteps = {
    option = "max-turn-steps";
    min = 1;
    max = 10000;
    default = 256;
    text = "Answers of the model in one turn, its child agents' too; one that is not done by then fails.";
  };
  harnessSilenceSeconds = {
    option = "harness-silence-seconds";
    min = 1;
    max = 86400;
    default = 3600;
    text = "A turn fails whose harness says nothing for that long, in seconds.";
  };
  maxEventStreams = {
    option = "max-event-streams";
    min = 1;
    max = 65536;
    default = 1024;
    text = "Event streams open at once.";
  };
  maxEventStreamsPerTenant = {
    option = "max-event-streams-per-tenant";
    min = 1;
    max = 65536;
    default = 256;
    share = "maxEventStreams";
    text = "Of these, of one tenant.";
  };
  eventReplayLimit = {
    option = "event-replay-limit";
    min = 1;
    max = 100000;
    default = 1000;
    text = "Past events kept for streams that come back.";
  };
  maxRequestBytes = {
    option = "max-request-bytes";
    min = 1024;
    max = 33554432;
    default = 33554432;
    text = "Largest body of a request, in bytes; all bodies together: eight times that.";
  };
  requestSeconds = {
    option = "request-seconds";
    min = 1;
    max = 3600;
    default = 30;
    text = "How long a request may take to arrive, in seconds.";
  };
  maxFailedAttempts = {
    option = "max-failed-attempts";
    min = 1;
    max = 1000000;
    default = 120;
    text = "Wrong tokens from one address in a minute; 429 too_many_attempts beyond.";
  };
  maxDbConnections = {
    option = "max-db-connections";
    min = 4;
    max = 1000;
    default = 16;
    text = "Connections to PostgreSQL, over all tenants.";
  };
  maxTenantDatabaseMb = {
    option = "max-tenant-database-mb";
    min = 16;
    max = 1048576;
    default = 1024;
    text = "Largest database of a tenant, in MiB.";
  };
}
