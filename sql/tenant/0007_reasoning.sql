-- What a model thought before it answered, and what was shown of an answer that failed.  The
-- opaque part of reasoning goes back to the model that it is from, byte for byte, and to
-- nobody else.

ALTER TABLE app.item
	DROP CONSTRAINT item_kind_check,
	ADD CONSTRAINT item_kind_check CHECK (kind IN
		('user', 'assistant', 'tool_call', 'tool_result', 'reasoning', 'discarded')),
	ADD COLUMN origin text NOT NULL DEFAULT '' CHECK (octet_length(origin) <= 64),
	ADD COLUMN opaque bytea CHECK (octet_length(opaque) BETWEEN 1 AND 8388608),
	ADD CHECK (opaque IS NULL OR kind = 'reasoning'),
	DROP CONSTRAINT item_check4, -- of details
	ADD CONSTRAINT item_details_kind_check
		CHECK (details IS NULL OR kind IN ('tool_result', 'discarded'));
