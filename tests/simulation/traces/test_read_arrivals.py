"""Public cluster traces as arrivals: every job is kept or counted by a reason, and damage reads nothing."""

import json
from pathlib import Path

import pytest
from trace_files import table, tar_gz, written

from weaverl.errors import TraceError, UsageError
from weaverl.simulation.traces import instances, sieve
from weaverl.simulation.traces.philly import NO_ATTEMPT_TIMES
from weaverl.simulation.traces.read import Format, Reading, read_arrivals, read_trace
from weaverl.simulation.traces.records import Arrivals

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
PACIFIC = Reading(zone="America/Los_Angeles")


def philly(tmp_path: Path, *stamps: str, reading: Reading = PACIFIC) -> Arrivals:
    rows = "".join(f"{stamp},66.0,1,66.0,11cb48\n" for stamp in stamps)
    return read_arrivals(written(tmp_path / "philly.csv", PHILLY + rows), reading=reading)


def submitted(arrivals: Arrivals) -> list[float]:
    return [one.submit_seconds for one in arrivals.arrivals]


class TestPhillyCsv:
    def test_arrivals_in_no_order_are_sorted_and_the_first_in_time_is_second_0(self, tmp_path):
        found = philly(tmp_path, "2017-10-09 07:01:55", "2017-10-09 06:13:03", "2017-09-29 07:58:32")
        assert submitted(found) == [0.0, 857671.0, 860603.0]
        assert found.origin == "2017-09-29 07:58:32-07:00"

    def test_equal_rows_are_two_jobs_with_ids_of_their_rows(self, tmp_path):
        found = philly(tmp_path, "2017-10-09 07:01:55", "2017-10-09 07:01:55")
        assert [one.job_id for one in found.arrivals] == ["row000001", "row000002"]

    def test_a_cluster_name_that_looks_like_a_number_stays_a_name(self, tmp_path):
        rows = PHILLY + "2017-10-09 06:13:03,2951.0,1,2951.0,6214e9\n"
        assert read_arrivals(written(tmp_path / "p.csv", rows)).arrivals[0].tenant == "6214e9"

    def test_elapsed_time_over_a_clock_change_counts_the_repeated_hour(self, tmp_path):
        stamps = ("2017-11-05 00:59:59", "2017-11-05 01:46:30", "2017-11-05 02:00:01")
        zoned, plain = philly(tmp_path, *stamps), philly(tmp_path, *stamps, reading=Reading())
        assert submitted(zoned) == [0.0, 2791.0, 7202.0]
        assert submitted(plain) == [0.0, 2791.0, 3602.0]
        assert zoned.warnings == () and len(plain.warnings) == 1 and "no time zone" in plain.warnings[0]

    def test_an_hour_that_spring_leaves_out_is_read_with_the_offset_before(self, tmp_path):
        stamps = ("2018-03-11 01:59:59", "2018-03-11 02:30:00", "2018-03-11 03:30:00")
        assert submitted(philly(tmp_path, *stamps)) == [0.0, 1801.0, 1801.0]

    def test_a_zone_word_is_obeyed_and_an_unknown_one_refused_by_name(self, tmp_path):
        found = philly(tmp_path, "2017-10-03 00:08:00 PDT", "2017-10-03 07:08:01 UTC", reading=Reading())
        assert submitted(found) == [0.0, 1.0] and found.warnings == ()
        with pytest.raises(TraceError, match=r"line 2, column timestamp: .* is in zone IST, which is not known"):
            philly(tmp_path, "2017-10-03 00:08:00 IST")

    @pytest.mark.parametrize("stamp", ["2017-13-01 00:00:00", "2017-02-29 00:00:00", "20171009", "", "1507532515"])
    def test_what_is_no_stamp_is_refused_with_its_line(self, tmp_path, stamp):
        with pytest.raises(TraceError, match="line 3, column timestamp"):
            philly(tmp_path, "2017-10-09 07:01:55", stamp)

    def test_an_unknown_time_zone_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match="no time zone 'Mars/Base'"):
            philly(tmp_path, "2017-10-09 07:01:55", reading=Reading(zone="Mars/Base"))

    def test_a_utilisation_log_is_not_taken_for_jobs(self, tmp_path):
        line = "2017-10-03 00:08:00 PDT,m29,60.8,99.366666667,NA,63.3,100.0,100.0,100.0,100.0,\n"
        with pytest.raises(TraceError, match=r"11 columns found .* name the trace with --format"):
            read_arrivals(written(tmp_path / "util.csv", line))
        with pytest.raises(TraceError, match=r"util\.csv is a utilisation log .* give the log of jobs"):
            read_arrivals(written(tmp_path / "util.csv", line), Format.PHILLY)

    def test_spelled_out_durations_are_seconds_and_other_words_are_refused(self, tmp_path):
        path = tmp_path / "p.csv"
        rows = ['"1 day, 6:00:00"', "1-02:03:04", "00:00:59", "1e3"]
        text = PHILLY + "".join(f"2017-10-09 07:01:55,{one},1,1,vc\n" for one in rows)
        assert [one.duration_seconds for one in read_arrivals(written(path, text)).arrivals] == [
            108000,
            93784,
            59,
            1000,
        ]
        with pytest.raises(TraceError, match="line 2, column duration: 'Partition_Limit'"):
            read_arrivals(written(path, PHILLY + "2017-10-09 07:01:55,Partition_Limit,1,1,vc\n"))

    def test_the_whole_file_has_all_its_jobs_and_gpu_hours(self, philly_file):
        found = philly_file
        assert (found.rows, len(found.arrivals), found.skipped) == (82_247, 82_247, {})
        assert round(found.gpu_hours, 2) == 978_078.47
        assert found.origin == "2017-09-04 10:30:41"
        told_apart = {(one.submit_seconds, one.duration_seconds, one.gpus, one.tenant) for one in found.arrivals}
        assert len(found.arrivals) - len(told_apart) == 65
        gaps = [b.submit_seconds - a.submit_seconds for a, b in zip(found.arrivals, found.arrivals[1:], strict=False)]
        assert min(gaps) == 0.0 and max(one.gpus for one in found.arrivals) > 8


def attempt(start: str | None, end: str | None, *gpus: int) -> dict:
    machines = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(count)]} for i, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": machines}


def logged(job: str, *attempts: dict, submitted_time: str = "2017-10-07 01:11:39") -> dict:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": job,
        "attempts": list(attempts),
        "submitted_time": submitted_time,
        "user": "ce2f4c",
    }


class TestPhillyLog:
    def read(self, tmp_path: Path, *jobs: dict) -> Arrivals:
        return read_arrivals(written(tmp_path / "cluster_job_log", json.dumps(jobs)), Format.PHILLY_JSON, PACIFIC)

    def test_time_between_attempts_is_not_run_time_and_each_attempt_has_its_own_gpus(self, tmp_path):
        job = logged(
            "a",
            attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
            attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", 8, 8),
        )
        found = self.read(tmp_path, job).arrivals[0]
        assert found.duration_seconds == 74 + 193182
        assert found.gpus * found.duration_seconds == pytest.approx(74 * 8 + 193182 * 16)

    def test_every_job_is_kept_or_counted_by_a_reason(self, tmp_path):
        first, second = "2017-10-07 01:12:09", "2017-10-07 01:13:23"
        found = self.read(
            tmp_path,
            logged("good", attempt(first, second, 1)),
            logged("waited"),
            logged("runs", attempt(first, second, 1), attempt(second, None, 1)),
            logged("unlogged", attempt(None, second, 1)),
            logged("no GPU", attempt(first, second)),
            logged("backward", attempt(second, first, 1)),
            logged("no time", attempt(first, first, 1)),
        )
        assert [one.job_id for one in found.arrivals] == ["good"]
        assert found.rows == 7
        assert found.skipped == {
            sieve.NEVER_STARTED: 1,
            sieve.STILL_RUNNING: 1,
            NO_ATTEMPT_TIMES: 1,
            sieve.NO_GPUS: 1,
            sieve.BACKWARD: 1,
            sieve.NO_TIME: 1,
        }

    def test_json_that_is_none_of_the_log_is_refused_with_its_place(self, tmp_path):
        with pytest.raises(TraceError, match=r"missing required field `vc` - at `\$\[0\]`"):
            self.read(tmp_path, {"status": "Pass"})
        with pytest.raises(TraceError, match="not a Philly job log"):
            read_arrivals(written(tmp_path / "log.json", "[NaN]"), Format.PHILLY_JSON)

    def test_the_same_id_twice_is_refused(self, tmp_path):
        job = logged("a", attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8))
        with pytest.raises(TraceError, match="job a is there twice"):
            self.read(tmp_path, job, job)


class TestHelios:
    HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"

    def test_jobs_that_started_are_kept_whatever_their_end(self, tmp_path):
        day = "2020-06-09"
        rows = [
            f"1,u,vcJkd,1,1,1,COMPLETED,{day} 18:41:01,{day} 18:41:01,2020-06-10 04:55:09,36848,0",
            f"2,u,vcé,4,16,1,CANCELLED by 32874,{day} 18:41:27,{day} 18:41:20,{day} 18:45:36,256,0",
            f"3,u,vc,4,16,1,CANCELLED,{day} 18:41:27,None,{day} 18:45:36,0,249",
            f"4,u,vc,0,16,1,COMPLETED,{day} 18:41:27,{day} 18:41:27,{day} 18:45:36,249,0",
            f"5,u,vc,1,16,1,FAILED,{day} 18:41:27,{day} 18:41:27,{day} 18:41:27,0,0",
        ]
        path = written(tmp_path / "cluster_log.csv", self.HEADER + "\n".join(rows))
        found = read_arrivals(path, reading=Reading(zone="Asia/Shanghai"))
        kept = [(one.job_id, one.tenant, one.submit_seconds, one.duration_seconds, one.gpus) for one in found.arrivals]
        assert kept == [("1", "vcJkd", 0.0, 36848.0, 1.0), ("2", "vcé", 26.0, 256.0, 4.0)]
        assert found.skipped == {sieve.NEVER_STARTED: 1, sieve.NO_GPUS: 1, sieve.NO_TIME: 1}


class TestPai2020:
    JOBS = "job,inst,user,Terminated,494319.0,494819.0\n"
    TASKS = "job,ps,1.0,Terminated,494320.0,494819.0,600.0,29.3,0.0,\n"
    TASKS += "job,worker,2.0,Terminated,494330.0,494800.0,,,50.0,T4\n"

    def read(self, folder: Path, jobs: str, tasks: str, zone: str | None = None) -> Arrivals:
        written(folder / "pai_task_table.csv", tasks)
        return read_arrivals(written(folder / "pai_job_table.csv", jobs), Format.PAI_2020, Reading(zone=zone))

    def test_a_job_asks_for_the_gpus_of_all_its_tasks(self, tmp_path):
        (job,) = self.read(tmp_path, self.JOBS, self.TASKS).arrivals
        assert (job.job_id, job.tenant, job.gpus, job.duration_seconds) == ("job", "user", 1.0, 470.0)

    def test_columns_come_from_the_header_file_beside_the_table(self, tmp_path):
        written(tmp_path / "pai_job_table.header", "user,job_name,inst_id,status,start_time,end_time\n")
        (job,) = self.read(tmp_path, "someone,job,inst,Terminated,494319.0,494819.0\n", self.TASKS).arrivals
        assert job.tenant == "someone"

    def test_a_time_of_0_is_not_known(self, tmp_path):
        tasks = "".join(
            f"{name},worker,1.0,Terminated,{start},{end},,,100.0,T4\n"
            for name, start, end in [
                ("a", "0", "500"),
                ("b", "100", "0"),
                ("c", "0", "0"),
                ("d", "", ""),
                ("e", "9", "10"),
            ]
        )
        jobs = "".join(f"{name},i,u,Failed,{submit},500\n" for name, submit in zip("abcdefg", "1111101", strict=True))
        found = self.read(tmp_path, jobs, tasks)
        assert [one.job_id for one in found.arrivals] == ["e"]
        assert found.skipped == {sieve.NEVER_STARTED: 3, sieve.STILL_RUNNING: 1, sieve.NO_GPUS: 2}

    def test_a_job_without_submission_is_counted_and_tasks_of_no_job_are_told(self, tmp_path):
        found = self.read(tmp_path, "job,i,u,Failed,0,500\n", self.TASKS + self.TASKS.replace("job,", "other,"))
        assert found.skipped == {sieve.NO_SUBMISSION: 1}
        assert found.warnings == (
            f"{tmp_path / 'pai_task_table.csv'}: tasks of 1 jobs that the job table does not have",
        )

    def test_shifted_stamps_are_relative_unless_a_zone_is_asked_for(self, tmp_path):
        assert self.read(tmp_path, self.JOBS, self.TASKS).origin == "494319 s"
        shown = self.read(tmp_path, self.JOBS, self.TASKS, zone="Asia/Shanghai")
        assert shown.origin == "1970-01-07 01:18:39+08:00" and shown.arrivals[0].submit_seconds == 0.0

    def test_a_table_that_is_named_otherwise_wants_its_tasks_named(self, tmp_path):
        path = written(tmp_path / "jobs.csv", self.JOBS)
        with pytest.raises(TraceError, match="name the task table with --tasks"):
            read_arrivals(path, Format.PAI_2020)
        tasks = written(tmp_path / "tasks.csv", self.TASKS)
        assert read_arrivals(path, Format.PAI_2020, Reading(tasks=tasks)).rows == 1


class TestInstances:
    PODS = ",".join(instances.POD_COLUMNS) + "\n"
    INSTANCES = ",".join(instances.INSTANCE_COLUMNS) + "\n"

    def test_a_pod_that_was_never_scheduled_is_no_job_of_zero_length(self, tmp_path):
        rows = [
            "pod-0,12000,16384,1,1000,,LS,Running,0,12537496,0",
            "pod-1,6000,12288,1,460,,LS,Running,427061,12902960,427061",
            "pod-2,12000,24576,8,1000,,LS,Running,1558381,12902960,1558381",
            "pod-3,11908,47104,1,1000,,BE,Pending,10644355,10644932,",
            "pod-4,20000,65536,0,0,,LS,Running,2759674,12902960,2759676",
        ]
        found = read_arrivals(written(tmp_path / "openb.csv", self.PODS + "\n".join(rows)))
        assert submitted(found) == [0.0, 427061.0, 1558381.0]
        assert [one.gpus for one in found.arrivals] == [1.0, 0.46, 8.0]
        assert found.skipped == {sieve.NEVER_STARTED: 1, sieve.NO_GPUS: 1}
        assert found.warnings == ("2 jobs end together at 12902960, the trace's end: they ran longer",)

    def test_jobs_cut_by_either_end_of_the_trace_are_kept_apart(self, tmp_path):
        times = {
            "whole": "475.00000000000006,475.0,500",
            "left": ",,475.00000000000006",
            "right": "100,100,",
            "both": ",,",
            "zero": "100,100.0000000001,100",
            "waiting": "100,,200",
        }
        rows = "".join(
            f"{name},HN,app,12,12,1,1,25,25,120.0,120.0,640.0,800.0,-1,{cells}\n" for name, cells in times.items()
        )
        found = read_arrivals(written(tmp_path / "dlrm.csv", self.INSTANCES + rows))
        assert [(one.job_id, one.duration_seconds) for one in found.arrivals] == [("whole", 25.0)]
        assert found.skipped == {
            sieve.OLDER: 1,
            sieve.OUTLIVES: 1,
            sieve.OLDER_AND_OUTLIVES: 1,
            sieve.NO_TIME: 1,
            sieve.NEVER_STARTED: 1,
        }


class TestGavel:
    LINE = 'LM (batch size 10)\tcd %s/lm && python main.py --data "%s/wikitext2" \t--steps\t1\t{}\t{}\t{}\n'

    def read(self, tmp_path: Path, *lines: tuple[str, str, str], rate: float | None = 2.0) -> Arrivals:
        path = written(tmp_path / "jobs.trace", "".join(self.LINE.format(*line) for line in lines))
        return read_arrivals(path, Format.GAVEL, Reading(steps_per_second=rate))

    def test_steps_become_seconds_and_ties_keep_their_order(self, tmp_path):
        found = self.read(tmp_path, ("100", "7.000000", "1"), ("50", "0.000000", "4"), ("20", "0.000000", "1"))
        assert [(one.job_id, one.submit_seconds, one.duration_seconds, one.gpus) for one in found.arrivals] == [
            ("row000002", 0.0, 25.0, 4.0),
            ("row000003", 0.0, 10.0, 1.0),
            ("row000001", 7.0, 50.0, 1.0),
        ]

    def test_without_a_rate_steps_are_refused(self, tmp_path):
        with pytest.raises(TraceError, match="counts work in steps: say how fast they run with --steps-per-second"):
            self.read(tmp_path, ("100", "0", "1"), rate=None)

    def test_tabs_are_not_guessed(self, tmp_path):
        path = written(tmp_path / "jobs.trace", self.LINE.format(1, 0, 1))
        with pytest.raises(TraceError, match=r"1 column found in its first line .* name the trace with --format"):
            read_arrivals(path)
        with pytest.raises(TraceError, match="1 column found, expected 5"):
            read_arrivals(path, Format.PHILLY)
        with pytest.raises(TraceError, match="line 1: 1 tab-separated fields, expected 7"):
            read_arrivals(written(path, "a,b,c\n"), Format.GAVEL, Reading(steps_per_second=1.0))


def test_an_archive_made_on_a_mac_is_read_by_its_data(tmp_path: Path):
    data = (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n").encode()
    archive = tar_gz(tmp_path / "trace.tar.gz", {"._x.csv": b"\x00\x05\x16\x07", "x.csv": data})
    assert read_arrivals(archive).rows == 1


def test_a_public_trace_is_not_taken_for_ours_nor_ours_for_one(tmp_path: Path):
    with pytest.raises(TraceError, match=r"first `weaverl trace convert .* --format philly --out FILE`"):
        read_trace(written(tmp_path / "p.csv", PHILLY))
    with pytest.raises(TraceError, match="a trace of ours already"):
        read_arrivals(written(tmp_path / "t.csv", table()))
