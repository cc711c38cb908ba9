-- Who logs in besides the owner; `chatlane admin grants` makes the other groups and says what each may.
\set password `cat /run/secrets/postgres/application`
CREATE ROLE chatlane_application NOLOGIN;
CREATE ROLE chatlane_router LOGIN PASSWORD :'password' IN ROLE chatlane_application;
