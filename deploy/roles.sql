-- The image of PostgreSQL runs this once, when its volume is empty.
-- The owner makes and changes tables; the bot may read and write their rows (toolchart database upgrade --role bot).
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv bot_password BOT_PASSWORD
CREATE ROLE owner LOGIN PASSWORD :'owner_password';
CREATE ROLE bot LOGIN PASSWORD :'bot_password';
CREATE DATABASE toolchart OWNER owner;
REVOKE ALL ON DATABASE toolchart FROM PUBLIC;
GRANT CONNECT ON DATABASE toolchart TO bot;
