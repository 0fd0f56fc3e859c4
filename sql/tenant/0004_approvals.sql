-- Whether a session's calls ask a person first, and whether it is planning: then only what
-- reads is run.  A person's answer ends the planning, so the tenant's role may change that.

ALTER TABLE app.session
	ADD COLUMN approvals text NOT NULL DEFAULT 'sandbox' CHECK (approvals IN ('sandbox', 'ask')),
	ADD COLUMN planning boolean NOT NULL DEFAULT false;

-- Which tools people allowed for the rest of a session.
CREATE INDEX request_by_session ON app.request (session) WHERE decision IS NOT NULL;

DO $$
BEGIN
	EXECUTE format('GRANT UPDATE (planning) ON app.session TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
