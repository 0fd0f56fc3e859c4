-- What a turn used, and what that cost by the operator's prices: in billionths of their
-- currency, null where nothing of it had a price.

ALTER TABLE app.session
	ADD COLUMN reasoning_tokens bigint NOT NULL DEFAULT 0 CHECK (reasoning_tokens >= 0),
	ADD COLUMN cost_nano bigint CHECK (cost_nano >= 0);

ALTER TABLE app.turn
	ADD COLUMN input_tokens bigint NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
	ADD COLUMN output_tokens bigint NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
	ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0),
	ADD COLUMN reasoning_tokens bigint NOT NULL DEFAULT 0 CHECK (reasoning_tokens >= 0),
	ADD COLUMN cost_nano bigint CHECK (cost_nano >= 0);

DO $$
DECLARE
	runtime text := 'cr_' || substr(current_database(), 4);
BEGIN
	EXECUTE format('GRANT UPDATE (reasoning_tokens, cost_nano) ON app.session TO %I', runtime);
	EXECUTE format('GRANT UPDATE (input_tokens, output_tokens, cached_tokens, reasoning_tokens, '
		'cost_nano) ON app.turn TO %I', runtime);
END
$$;
