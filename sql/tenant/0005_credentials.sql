-- Under whose account of a provider a session's model is used; '' = nobody's.

ALTER TABLE app.session
	ADD COLUMN credential text NOT NULL DEFAULT '' CHECK (octet_length(credential) <= 64);
