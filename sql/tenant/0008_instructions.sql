-- What the tenant tells the model of a session beside every input; '' = nothing.

ALTER TABLE app.session
	ADD COLUMN instructions text NOT NULL DEFAULT ''
		CHECK (octet_length(instructions) <= 32768);

DO $$
BEGIN
	EXECUTE format('GRANT UPDATE (instructions) ON app.session TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
