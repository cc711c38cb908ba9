-- migrate:up

-- Titles are compared as people see them: composed, and without signs that nobody sees. Not unique:
-- titles of before that look alike stay, and the newest of them is meant.
CREATE INDEX sessions_title_key_title_scope_idx ON sessions (
    (normalize(regexp_replace(title, '[\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u202A-\u202E\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]', '', 'g'), NFC)),
    title_scope
) WHERE title IS NOT NULL;

-- migrate:down

DROP INDEX sessions_title_key_title_scope_idx;
