"""Tables of grading on attached GPUs; events, calibrations and verifications are append-only."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


TABLES = ("leaderboard_gradeevent", "leaderboard_calibration", "leaderboard_verification")


def add_triggers(apps, schema_editor):
    is_postgresql = schema_editor.connection.vendor == "postgresql"
    for table in TABLES:
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            body = (
                "FOR EACH ROW EXECUTE FUNCTION leaderboard_refuse_change()"
                if is_postgresql
                else f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
            schema_editor.execute(f"CREATE TRIGGER {name} BEFORE {action} ON {table} {body}")


def drop_triggers(apps, schema_editor):
    for table in TABLES:
        for action in ("UPDATE", "DELETE"):
            name = f"{table}_no_{action.lower()}"
            on = f" ON {table}" if schema_editor.connection.vendor == "postgresql" else ""
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")


class Migration(migrations.Migration):

    dependencies = [
        ('leaderboard', '0007_run_newest_index'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Host',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40, unique=True)),
                ('key_serial', models.PositiveIntegerField(default=1)),
                ('registered_at', models.DateTimeField()),
                ('last_seen', models.DateTimeField(null=True)),
                ('versions', models.JSONField(default=dict)),
                ('isolation', models.CharField(blank=True, max_length=1)),
                ('findings', models.JSONField(default=list)),
                ('state', models.CharField(choices=[('new', 'New'), ('healthy', 'Healthy'), ('quarantined', 'Quarantined'), ('retired', 'Retired')], default='new', max_length=12)),
                ('reason', models.CharField(blank=True, max_length=300)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='SeenMessage',
            fields=[
                ('nonce', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='HostGpu',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uuid', models.CharField(max_length=80)),
                ('name', models.CharField(max_length=100)),
                ('driver', models.CharField(blank=True, max_length=40)),
                ('instance', models.CharField(blank=True, max_length=64)),
                ('last_seen', models.DateTimeField(null=True)),
                ('state', models.CharField(choices=[('new', 'New'), ('healthy', 'Healthy'), ('quarantined', 'Quarantined'), ('retired', 'Retired')], default='new', max_length=12)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('calibrated_at', models.DateTimeField(null=True)),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='host_gpus', to='leaderboard.gpu')),
                ('host', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='gpus', to='leaderboard.host')),
            ],
            options={
                'ordering': ['host', 'uuid'],
            },
        ),
        migrations.CreateModel(
            name='GradeJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('verification', 'Verification'), ('calibration', 'Calibration')], max_length=12)),
                ('tier', models.CharField(choices=[('quick', 'Quick'), ('full', 'Full')], max_length=5)),
                ('reason', models.CharField(choices=[('person', 'Person'), ('release', 'Release'), ('new_best', 'New Best'), ('random', 'Random'), ('reverify', 'Reverify'), ('confirm', 'Confirm'), ('calibration', 'Calibration')], max_length=12)),
                ('requested_at', models.DateTimeField()),
                ('state', models.CharField(choices=[('requested', 'Requested'), ('queued', 'Queued'), ('leased', 'Leased'), ('running', 'Running'), ('recorded', 'Recorded'), ('refused', 'Refused'), ('expired', 'Expired'), ('cancelled', 'Cancelled')], default='requested', max_length=10)),
                ('sent_at', models.DateTimeField(null=True)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('max_attempts', models.PositiveIntegerField()),
                ('token', models.PositiveBigIntegerField(default=0)),
                ('instance', models.CharField(blank=True, max_length=64)),
                ('leased_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('lease_until', models.DateTimeField(null=True)),
                ('deadline', models.DateTimeField(null=True)),
                ('progress', models.JSONField(default=dict)),
                ('cause', models.CharField(blank=True, max_length=300)),
                ('ended_at', models.DateTimeField(null=True)),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='grade_jobs', to='leaderboard.gpu')),
                ('problem', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.problem')),
                ('requested_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('run', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='grade_jobs', to='leaderboard.run')),
                ('holder', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='held_jobs', to='leaderboard.hostgpu')),
                ('target', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='calibration_jobs', to='leaderboard.hostgpu')),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='GradeEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('requested', 'Requested'), ('queued', 'Queued'), ('leased', 'Leased'), ('started', 'Started'), ('retried', 'Retried'), ('recorded', 'Recorded'), ('refused', 'Refused'), ('expired', 'Expired'), ('cancelled', 'Cancelled'), ('late_result', 'Late Result')], max_length=12)),
                ('text', models.CharField(blank=True, max_length=300)),
                ('token', models.PositiveBigIntegerField(null=True)),
                ('evidence', models.CharField(blank=True, max_length=64)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='events', to='leaderboard.gradejob')),
                ('host_gpu', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.hostgpu')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='Calibration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('word', models.CharField(max_length=20)),
                ('figures', models.JSONField()),
                ('ratio', models.FloatField(null=True)),
                ('is_accepted', models.BooleanField()),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('is_record', models.BooleanField(default=False)),
                ('evidence_digest', models.CharField(max_length=64)),
                ('recorded_at', models.DateTimeField()),
                ('accepted_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.gpu')),
                ('problem', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.problem')),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='calibrations', to='leaderboard.gradejob')),
                ('host_gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='calibrations', to='leaderboard.hostgpu')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='Verification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('gpu_uuid', models.CharField(max_length=80)),
                ('tier', models.CharField(choices=[('quick', 'Quick'), ('full', 'Full')], max_length=5)),
                ('word', models.CharField(max_length=20)),
                ('outcome', models.CharField(max_length=12)),
                ('counts_for_board', models.BooleanField()),
                ('shapes', models.JSONField()),
                ('score', models.FloatField(null=True)),
                ('fired', models.JSONField()),
                ('isolation', models.CharField(max_length=1)),
                ('solution_digest', models.CharField(max_length=64)),
                ('problem_version', models.CharField(max_length=64)),
                ('rules_version', models.CharField(max_length=20)),
                ('grader_version', models.CharField(max_length=20)),
                ('evidence_digest', models.CharField(max_length=64)),
                ('recorded_at', models.DateTimeField()),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.gpu')),
                ('host_gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='leaderboard.hostgpu')),
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='verification', to='leaderboard.gradejob')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='verifications', to='leaderboard.run')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.AddConstraint(
            model_name='hostgpu',
            constraint=models.UniqueConstraint(fields=('host', 'uuid'), name='host_gpu_unique'),
        ),
        migrations.AddIndex(
            model_name='gradejob',
            index=models.Index(fields=['state', 'gpu', 'requested_at'], name='grade_job_waiting'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('deadline__isnull', False), ('holder__isnull', False), ('lease_until__isnull', False), ('state__in', ['leased', 'running']), ('token__gt', 0)), models.Q(models.Q(('state__in', ['leased', 'running']), _negated=True), ('deadline', None), ('lease_until', None)), _connector='OR'), name='grade_job_held_has_lease'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', False), ('state__in', ['recorded', 'refused', 'expired', 'cancelled'])), models.Q(models.Q(('state__in', ['recorded', 'refused', 'expired', 'cancelled']), _negated=True), ('ended_at', None)), _connector='OR'), name='grade_job_ended_has_time'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'verification'), ('run__isnull', False), ('target', None)), models.Q(('kind', 'calibration'), ('run', None), ('target__isnull', False)), _connector='OR'), name='grade_job_about_one_thing'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.CheckConstraint(condition=models.Q(('attempt__lte', models.F('max_attempts'))), name='grade_job_attempts_bounded'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'verification'), ('state__in', ['requested', 'queued', 'leased', 'running'])), fields=('run', 'gpu', 'tier'), name='grade_job_one_open_per_run'),
        ),
        migrations.AddConstraint(
            model_name='gradejob',
            constraint=models.UniqueConstraint(condition=models.Q(('kind', 'calibration'), ('state__in', ['requested', 'queued', 'leased', 'running'])), fields=('target',), name='grade_job_one_open_calibration'),
        ),
        migrations.AddIndex(
            model_name='calibration',
            index=models.Index(fields=['gpu', 'problem', 'is_record'], name='calibration_record'),
        ),
        migrations.AddConstraint(
            model_name='calibration',
            constraint=models.CheckConstraint(condition=models.Q(('is_accepted', True), models.Q(('reason', ''), _negated=True), _connector='OR'), name='calibration_refusal_has_reason'),
        ),
        migrations.AddConstraint(
            model_name='calibration',
            constraint=models.CheckConstraint(condition=models.Q(('is_record', False), models.Q(('accepted_by__isnull', False), ('is_accepted', True)), _connector='OR'), name='calibration_record_by_a_person'),
        ),
        migrations.AddIndex(
            model_name='verification',
            index=models.Index(fields=['run', '-id'], name='verification_latest'),
        ),
        migrations.AddConstraint(
            model_name='verification',
            constraint=models.CheckConstraint(condition=models.Q(('score', None), models.Q(('counts_for_board', True), ('outcome', 'passed'), ('score__gt', 0)), _connector='OR'), name='verification_score_counts'),
        ),
        migrations.RunPython(add_triggers, drop_triggers),
    ]
