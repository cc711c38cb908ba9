-- Who logs in besides the owner of the tables, for deploy/compose.yaml; `chatlane admin grants`
-- made the group and gave it its rights. May run more than once.
\getenv password CHATLANE_POSTGRES_PASSWORD
SELECT 'CREATE ROLE chatlane_router LOGIN IN ROLE chatlane_application'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'chatlane_router') \gexec
ALTER ROLE chatlane_router PASSWORD :'password';
