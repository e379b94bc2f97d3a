"""Addresses of the review desk."""

from django.urls import path

from leaderboard.review import audit_views, grade_views, token_views, views

app_name = "review"
urlpatterns = [
    path("", views.queue, name="queue"),
    path("bulk/", views.bulk, name="bulk"),
    path("release/", views.release, name="release"),
    path("tokens/", token_views.token_list, name="tokens"),
    path("tokens/<str:key>/revoke/", token_views.revoke, name="token_revoke"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/", views.run, name="run"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/verify/", grade_views.verify, name="verify"),
    path("jobs/<int:job>/", grade_views.act_on_job, name="job"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/audit/", audit_views.audit, name="audit"),
    path("runs/<str:deck>/<str:gpu>/<str:run_id>/audit/upload/", audit_views.upload, name="audit_upload"),
]
