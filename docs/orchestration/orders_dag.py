"""Every hour: copy what is new in a queue, and write the corrections of the hour once."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag

PYTHON = "PYSPARK_PYTHON=/opt/jobs/bin/python /opt/jobs/bin/python"
"""That which has the package. The one in `PATH` is that of Airflow."""


@dag(
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
)
def orders() -> None:
    """Run one job after the other, and look at all queries then."""
    check = BashOperator(
        task_id="check",
        bash_command="yt-exactly-once status //home/shop --check",
        trigger_rule="all_done",
        retries=0,
    )
    copy = BashOperator(task_id="copy", bash_command=f"{PYTHON} /jobs/copy_orders.py")
    correct = BashOperator(
        task_id="correct",
        bash_command=PYTHON + " /jobs/correct.py {{ dag_run.run_after.strftime('%Y%m%d%H%M') }}",
    )
    # Both are last: a run whose copy has failed is a failed one, whatever the check says.
    copy >> [correct, check]


orders()
