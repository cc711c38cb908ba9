-- Runs once, as the superuser, in the database that the image makes: its owner, who is none, and who
-- else logs in. `chatlane admin grants` says what each group may; an owner who may make no roles wants
-- all three to be there.
\set password `cat /run/secrets/postgres/owner`
CREATE ROLE chatlane_owner LOGIN PASSWORD :'password';
ALTER DATABASE :"DBNAME" OWNER TO chatlane_owner;
CREATE ROLE chatlane_application NOLOGIN;
CREATE ROLE chatlane_retention NOLOGIN;
CREATE ROLE chatlane_reader NOLOGIN;
\set password `cat /run/secrets/postgres/application`
CREATE ROLE chatlane_router LOGIN PASSWORD :'password' IN ROLE chatlane_application;
\set password `cat /run/secrets/postgres/retention`
CREATE ROLE chatlane_keeper LOGIN PASSWORD :'password' IN ROLE chatlane_retention;
