"""Implements cut.pxd: the truncations of a fetcher's partitions."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport add32
from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR
from kafkacore._fast.follow.followed cimport (
    BEFELL_FAILED, CUT_END, FOLLOW_CUTS, FOLLOW_GONE, Fetcher, Position, fetcher_forget, followed_delay, followed_fail,
    followed_go_on, followed_is_in_session, followed_set,
)
from kafkacore._fast.follow.local cimport local_cut, local_position
from kafkacore._fast.log.log cimport LOG_BLOCKED, log_dir
from kafkacore._fast.log.partition cimport partition_high_watermark
from kafkacore._fast.wait.io cimport Job, io_submit
from kafkacore._fast.wait.mail cimport Mail
from kafkacore._fast.wait.park cimport park_hold, park_release


cdef Followed *of_job(Job *job) noexcept nogil:
    cdef Followed layout  # used only to compute the offset of the `job` field
    return <Followed *> (<char *> job - (<char *> &layout.job - <char *> &layout))


cdef void run(Job *job) noexcept nogil:
    """Runs on an I/O thread. The fetcher's thread does not use the fields of the truncation until the job is done."""
    cdef Followed *each = of_job(job)
    each.cut_result = local_cut(each.partition, each.cut_what, each.cut_to, each.cut_epoch, &each.waiter)


cdef void submit(Followed *each) noexcept nogil:
    memset(&each.job, 0, sizeof(Job))
    each.job.run = run
    each.job.reply = each.fetcher.inbox
    each.job.done.deliver = came_back
    each.job_is_out = True
    each.woken = False
    add32(&each.fetcher.jobs_out, 1)
    park_hold(&each.parked)
    if io_submit(log_dir(&each.partition.log), &each.job) < 0:
        each.cut_result = KAFKA_STORAGE_ERROR  # the log directory is closing
        came_back(&each.job.done)


cdef void came_back(Mail *mail) noexcept nogil:
    cdef Followed *each = of_job(<Job *> mail)
    cdef Fetcher *f = each.fetcher
    each.job_is_out = False
    add32(&f.jobs_out, -1)
    if each.state == FOLLOW_GONE:
        if each.in_all.next != NULL and followed_is_in_session(each):
            followed_set(each, FOLLOW_GONE)  # the next request removes it from the leader's session
        elif each.in_all.next != NULL:
            fetcher_forget(each)
    elif each.begins_again:
        cut_or_go_on(each)
    elif each.state == FOLLOW_CUTS:
        cut_ended(each)
    if f.on_mail != NULL:
        f.on_mail(f)
    park_release(&each.parked)


cdef void cut_begin(Followed *each, int what, int64_t offset) noexcept nogil:
    if each.job_is_out:
        # The partition was stopped and followed again while the job of its earlier truncation was running.
        cut_or_go_on(each)
        return
    each.cut_what = what
    each.cut_to = offset
    each.cut_epoch = each.at.leader_epoch
    followed_set(each, FOLLOW_CUTS)
    submit(each)


cdef void cut_woken(Followed *each) noexcept nogil:
    if each.job_is_out:
        each.woken = True
    elif each.cut_result == LOG_BLOCKED:
        submit(each)


cdef bint changed_log(Followed *each) noexcept nogil:
    cdef Position now
    local_position(each.partition, &now)
    return now.end_offset != each.at.end_offset or now.last_epoch != each.at.last_epoch


cdef void cut_ended(Followed *each) noexcept nogil:
    if each.cut_result == LOG_BLOCKED:
        if each.woken:
            submit(each)
    elif each.cut_result != 0:
        # Either the log directory has failed, or the partition has a newer role. With that role, this broker follows
        # the partition again or stops following it.
        followed_fail(each, BEFELL_FAILED, each.cut_result)
    elif each.cut_what == CUT_END and not changed_log(each):
        followed_delay(each)  # without a delay, the leader would at once demand the same truncation again
    else:
        each.fetcher.on_ready(each)


cdef void cut_or_go_on(Followed *each) noexcept nogil:
    cdef int64_t high_watermark = partition_high_watermark(each.partition)
    each.begins_again = each.job_is_out
    if each.job_is_out:
        followed_set(each, FOLLOW_CUTS)
        return
    local_position(each.partition, &each.at)
    if each.at.last_epoch < 0 and each.at.end_offset > high_watermark:
        cut_begin(each, CUT_END, high_watermark)
    else:
        followed_go_on(each)
