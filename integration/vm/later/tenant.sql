-- What the release that comes next in the test has and this one does not know of.
ALTER TABLE app.session ADD COLUMN later text NOT NULL DEFAULT 'of its time';

CREATE TABLE app.later (
	session uuid PRIMARY KEY REFERENCES app.session ON DELETE CASCADE,
	note text NOT NULL
);
