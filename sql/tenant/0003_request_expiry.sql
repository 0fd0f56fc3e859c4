-- A request may expire.  That nobody answered in time is not a denial, so it is a state of
-- its own, without a decision.

ALTER TABLE app.request
	ADD COLUMN expires_ms bigint CHECK (expires_ms > created_ms),
	DROP CONSTRAINT request_state_check,
	ADD CONSTRAINT request_state_check
		CHECK (state IN ('open', 'answered', 'withdrawn', 'expired')),
	ADD CHECK (state <> 'expired' OR expires_ms IS NOT NULL);
