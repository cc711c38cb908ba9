-- migrate:up

-- "Which accounts know an id of a person?", for a number belongs to one person on all of them.
CREATE INDEX aliases_platform_alias_idx ON aliases (platform, alias) WHERE kind = 'person';

-- migrate:down

DROP INDEX aliases_platform_alias_idx;
