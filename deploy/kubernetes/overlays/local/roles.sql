-- Who logs in besides the owner; `chatlane admin grants` makes the third group and says what each may.
CREATE ROLE chatlane_application NOLOGIN;
CREATE ROLE chatlane_retention NOLOGIN;
\set password `cat /run/secrets/postgres/application`
CREATE ROLE chatlane_router LOGIN PASSWORD :'password' IN ROLE chatlane_application;
\set password `cat /run/secrets/postgres/retention`
CREATE ROLE chatlane_keeper LOGIN PASSWORD :'password' IN ROLE chatlane_retention;
