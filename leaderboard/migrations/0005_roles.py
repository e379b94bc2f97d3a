"""Make the roles auditor, approver and operator as groups with their permissions."""

from django.contrib.auth.management import create_permissions
from django.db import migrations

ROLES = {
    "auditor": ["write_audit"],
    "approver": ["decide"],
    "operator": ["ingest"],
}
VIEWS = ("run", "audit", "finding", "assessment", "decision", "publication", "waiver", "release", "rejection")


def make_roles(apps, schema_editor):
    config = apps.get_app_config("leaderboard")
    config.models_module = True
    create_permissions(config, apps=apps, verbosity=0)
    config.models_module = None
    group_model, permission_model = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for name, codenames in ROLES.items():
        group, _ = group_model.objects.get_or_create(name=name)
        wanted = [*codenames, *(f"view_{view}" for view in VIEWS)]
        group.permissions.add(
            *permission_model.objects.filter(content_type__app_label="leaderboard", codename__in=wanted)
        )


def drop_roles(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name__in=ROLES).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("leaderboard", "0004_permissions_and_pins"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(make_roles, drop_roles)]
