-- What the release that comes next in the test has and this one does not know of.
ALTER TABLE control.tenant ADD COLUMN later integer NOT NULL DEFAULT 0;
