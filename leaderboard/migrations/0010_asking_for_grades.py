"""Asking for grades with a token: its own minutes, which token asked, and how long a recorded grade held its GPU."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0009_assessment_framework")]

    operations = [
        migrations.AddField("apitoken", "verification_minutes", models.PositiveIntegerField(null=True)),
        migrations.AddField(
            "gradejob",
            "api_token",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="grade_jobs",
                to="leaderboard.apitoken",
            ),
        ),
        migrations.AddField("gradejob", "gpu_seconds", models.FloatField(null=True)),
        migrations.AddConstraint(
            "gradejob",
            models.CheckConstraint(
                name="grade_job_cost_of_a_record",
                condition=models.Q(gpu_seconds=None) | models.Q(gpu_seconds__gte=0, state="recorded"),
            ),
        ),
    ]
