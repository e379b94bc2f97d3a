"""Refuse updates and deletes of decisions, releases and what they hold, in the database itself."""

from django.db import migrations

TABLES = ("leaderboard_decision", "leaderboard_release", "leaderboard_releasedcell", "leaderboard_waiver")

POSTGRES_FUNCTION = """
CREATE OR REPLACE FUNCTION leaderboard_refuse_change() RETURNS trigger AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only', ERRCODE = 'restrict_violation';
END;
$$ LANGUAGE plpgsql;
"""


def add_triggers(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRES_FUNCTION)
    for table in TABLES:
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            if schema_editor.connection.vendor == "postgresql":
                schema_editor.execute(
                    f"CREATE TRIGGER {name} BEFORE {action} ON {table} "
                    "FOR EACH ROW EXECUTE FUNCTION leaderboard_refuse_change()"
                )
            elif schema_editor.connection.vendor == "sqlite":
                schema_editor.execute(
                    f"CREATE TRIGGER {name} BEFORE {action} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )


def drop_triggers(apps, schema_editor):
    for table in TABLES:
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            on = f" ON {table}" if schema_editor.connection.vendor == "postgresql" else ""
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0001_initial")]
    operations = [migrations.RunPython(add_triggers, drop_triggers)]
