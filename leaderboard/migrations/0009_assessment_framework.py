"""What a run's source is written in, which `recompute` fills, and what the list of runs counts and offers by."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0008_grading_service")]

    operations = [
        migrations.AddField("assessment", "framework", models.CharField(max_length=60, null=True)),
        migrations.AddIndex(
            "assessment", models.Index(fields=["standing", "verdict", "framework"], name="assessment_facets")
        ),
        migrations.AddIndex("releasedcell", models.Index(fields=["run", "status"], name="released_run_status")),
    ]
