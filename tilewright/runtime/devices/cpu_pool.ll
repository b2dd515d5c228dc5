; The thread pool of the CPU device. The docstring of cpu.py describes the algorithm. cpu_pool.py
; replaces the names between @: offsets into the pool (LAYOUT), tuning constants, and what differs
; between platforms.
;
; Memory order: the fields of a job are plain stores before the release of a new epoch in STATE; a
; worker reads them after it has joined with an acquiring compare-and-swap. The owner reuses the
; slot only after STATE shows no active worker. Counters of ranges are relaxed (monotonic): they
; only assign programs to threads.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @clock_gettime(i32, ptr)
declare void @free(ptr)
declare i64 @write(i32, ptr, i64)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@PAUSE_DECLARATION@

define internal i64 @clock(i32 %which) {
  %spec = alloca [2 x i64], align 8
  %rc = call i32 @clock_gettime(i32 %which, ptr %spec)
  %s = load i64, ptr %spec
  %np = getelementptr i8, ptr %spec, i64 8
  %n = load i64, ptr %np
  %big = mul i64 %s, 1000000000
  %t = add i64 %big, %n
  ret i64 %t
}

; A new pool without workers, or null if out of memory. It is never freed: sleeping workers refer to
; it until the process ends.
define ptr @pool_new() {
  %slot = alloca ptr
  %rc = call i32 @posix_memalign(ptr %slot, i64 128, i64 @SIZE@)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %fill, label %fail
fill:
  %pool = load ptr, ptr %slot
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 @SIZE@, i1 false)
  %work = getelementptr i8, ptr %pool, i64 @WORK@
  %done = getelementptr i8, ptr %pool, i64 @DONE@
  %attr = getelementptr i8, ptr %pool, i64 @ATTR@
  %r0 = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %work, ptr null)
  %r2 = call i32 @pthread_cond_init(ptr %done, ptr null)
  %r3 = call i32 @pthread_attr_init(ptr %attr)
  %r4 = call i32 @pthread_attr_setdetachstate(ptr %attr, i32 @DETACHED@)
  %r5 = call i32 @pthread_attr_setstacksize(ptr %attr, i64 @STACK@)
  ret ptr %pool
fail:
  ret ptr null
}

; Starts one worker; returns 0 or an errno.
define i32 @pool_grow(ptr %pool) {
  %id = alloca ptr
  %attr = getelementptr i8, ptr %pool, i64 @ATTR@
  %rc = call i32 @pthread_create(ptr %id, ptr %attr, ptr @worker, ptr %pool)
  ret i32 %rc
}

; Runs chunks until none is left (returns 1) or the deadline has passed (returns 0): first those of
; this thread's range `home`, then those of the following ranges. `start` is the current time.
; Chunks double while they take less than 25 us, and are halved above 100 us. Records the cost per
; program for the estimates of later launches.
define internal i64 @drain(ptr %pool, ptr %scratch, i64 %home, i64 %start, i64 %deadline) {
entry:
  %fnp = getelementptr i8, ptr %pool, i64 @FN@
  %fn = load ptr, ptr %fnp
  %argsp = getelementptr i8, ptr %pool, i64 @ARGS@
  %args = load ptr, ptr %argsp
  %grid = getelementptr i8, ptr %pool, i64 @GRID@
  %countp = getelementptr i8, ptr %pool, i64 @RANGE_COUNT@
  %ranges = load i64, ptr %countp
  %grainp = getelementptr i8, ptr %pool, i64 @GRAIN@
  %grain1 = load i64, ptr %grainp
  %briefp = getelementptr i8, ptr %pool, i64 @BRIEF@
  %brief = load i64, ptr %briefp
  br label %range
range:
  %number = phi i64 [ %home, %entry ], [ %number2, %elsewhere ]
  %seen = phi i64 [ 1, %entry ], [ %seen2, %elsewhere ]
  %tr = phi i64 [ %start, %entry ], [ %te, %elsewhere ]
  %grainr = phi i64 [ %grain1, %entry ], [ %graine, %elsewhere ]
  %ranr = phi i64 [ 0, %entry ], [ %rane, %elsewhere ]
  %next = call ptr @range_at(ptr %pool, i64 %number)
  %endp = getelementptr i8, ptr %next, i64 8
  %stop = load i64, ptr %endp
  %own = icmp eq i64 %number, %home
  %short_job = icmp ne i64 %brief, 0
  %at_once = and i1 %own, %short_job
  %shift = select i1 %at_once, i64 0, i64 1
  br label %loop
loop:
  %t = phi i64 [ %tr, %range ], [ %t2, %again ]
  %grain = phi i64 [ %grainr, %range ], [ %grain2, %again ]
  %ran = phi i64 [ %ranr, %range ], [ %ran2, %again ]
  %taken = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %taken, %stop
  br i1 %some, label %take, label %empty
take:
  %left = sub i64 %stop, %taken
  %share = lshr i64 %left, %shift
  %c0 = call i64 @llvm.umin.i64(i64 %grain, i64 %share)
  %c = call i64 @llvm.umax.i64(i64 %c0, i64 1)
  %first = atomicrmw add ptr %next, i64 %c monotonic
  %mine = icmp slt i64 %first, %stop
  br i1 %mine, label %run, label %empty
run:
  %end = add i64 %first, %c
  %last = call i64 @llvm.umin.i64(i64 %end, i64 %stop)
  call void %fn(ptr %args, ptr %scratch, i64 %first, i64 %last, ptr %grid)
  %t2 = call i64 @clock(i32 @MONOTONIC@)
  %dt = sub i64 %t2, %t
  %count = sub i64 %last, %first
  %ran2 = add i64 %ran, %count
  %short = icmp ult i64 %dt, 25000
  %long = icmp ugt i64 %dt, 100000
  %double = shl i64 %c, 1
  %half = lshr i64 %c, 1
  %shorter = select i1 %long, i64 %half, i64 %c
  %grain2 = select i1 %short, i64 %double, i64 %shorter
  %late = icmp sgt i64 %t2, %deadline
  br i1 %late, label %out, label %again
again:
  br label %loop
empty:
  %te = phi i64 [ %t, %loop ], [ %t, %take ]
  %graine = phi i64 [ %grain, %loop ], [ %grain, %take ]
  %rane = phi i64 [ %ran, %loop ], [ %ran, %take ]
  %all = icmp uge i64 %seen, %ranges
  br i1 %all, label %out, label %elsewhere
elsewhere:
  %seen2 = add i64 %seen, 1
  %following = add i64 %number, 1
  %over = icmp uge i64 %following, %ranges
  %number2 = select i1 %over, i64 0, i64 %following
  br label %range
out:
  %result = phi i64 [ 1, %empty ], [ 0, %run ]
  %until = phi i64 [ %te, %empty ], [ %t2, %run ]
  %n = phi i64 [ %rane, %empty ], [ %ran2, %run ]
  %spent = sub i64 %until, %start
  call void @record_cost(ptr %pool, ptr %fn, i64 %spent, i64 %n)
  ret i64 %result
}

; Address of a range: two words, the next program that has not been taken, and the end. A range has
; its own cache lines (128 bytes).
define internal ptr @range_at(ptr %pool, i64 %number) {
  %ranges = getelementptr i8, ptr %pool, i64 @RANGES@
  %offset = shl i64 %number, 7
  %range = getelementptr i8, ptr %ranges, i64 %offset
  ret ptr %range
}

; Divides the `left` programs from `at` on into min(threads, MOST_RANGES) ranges of equal size.
define internal void @partition(ptr %pool, i64 %at, i64 %left, i64 %threads) {
entry:
  %countp = getelementptr i8, ptr %pool, i64 @RANGE_COUNT@
  %count = call i64 @llvm.umin.i64(i64 %threads, i64 @MOST_RANGES@)
  store i64 %count, ptr %countp
  %each = udiv i64 %left, %count
  %over = urem i64 %left, %count
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %from = phi i64 [ %at, %entry ], [ %to, %loop ]
  %longer = icmp ult i64 %i, %over
  %one = zext i1 %longer to i64
  %size = add i64 %each, %one
  %to = add i64 %from, %size
  %range = call ptr @range_at(ptr %pool, i64 %i)
  %endp = getelementptr i8, ptr %range, i64 8
  store atomic i64 %from, ptr %range monotonic, align 8
  store i64 %to, ptr %endp
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

; The entry of a function in COSTS: a direct-mapped table of 512 pairs (function, cost per program in
; ns/1024), indexed by Fibonacci hashing. Collisions overwrite: a cost is a hint.
define internal ptr @cost_slot(ptr %pool, ptr %fn) {
  %a = ptrtoint ptr %fn to i64
  %h = mul i64 %a, -7046029254386353131
  %i = lshr i64 %h, 55
  %o = shl i64 %i, 4
  %costs = getelementptr i8, ptr %pool, i64 @COSTS@
  %slot = getelementptr i8, ptr %costs, i64 %o
  ret ptr %slot
}

; Records that `n` programs of `fn` took `spent` ns.
define internal void @record_cost(ptr %pool, ptr %fn, i64 %spent, i64 %n) {
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %put
put:
  %slot = call ptr @cost_slot(ptr %pool, ptr %fn)
  %fine = shl i64 %spent, 10
  %cost = udiv i64 %fine, %n
  %costp = getelementptr i8, ptr %slot, i64 8
  store atomic i64 %cost, ptr %costp monotonic, align 8
  store atomic ptr %fn, ptr %slot monotonic, align 8
  br label %end
end:
  ret void
}

; Drops the cost of `fn`, whose code is being unloaded.
define void @pool_forget(ptr %pool, ptr %fn) {
  %slot = call ptr @cost_slot(ptr %pool, ptr %fn)
  %swap = cmpxchg ptr %slot, ptr %fn, ptr null monotonic monotonic
  ret void
}

; The cost per program of `fn` in ns/1024; 0 if unknown. Bounded so that `time_of` cannot overflow.
define internal i64 @cost_of(ptr %pool, ptr %fn) {
entry:
  %slot = call ptr @cost_slot(ptr %pool, ptr %fn)
  %holder = load atomic ptr, ptr %slot monotonic, align 8
  %known = icmp eq ptr %holder, %fn
  br i1 %known, label %look, label %no
look:
  %costp = getelementptr i8, ptr %slot, i64 8
  %cost = load atomic i64, ptr %costp monotonic, align 8
  %positive = call i64 @llvm.umax.i64(i64 %cost, i64 1)
  %bounded = call i64 @llvm.umin.i64(i64 %positive, i64 274877906944)
  ret i64 %bounded
no:
  ret i64 0
}

; The number of workers that are spinning or running.
define internal i64 @awake(ptr %pool) {
  %workersp = getelementptr i8, ptr %pool, i64 @WORKERS@
  %sleepersp = getelementptr i8, ptr %pool, i64 @SLEEPERS@
  %workers = load atomic i32, ptr %workersp monotonic, align 4
  %asleep = load atomic i32, ptr %sleepersp monotonic, align 4
  %few = sub i32 %workers, %asleep
  %wide = sext i32 %few to i64
  %none = icmp slt i64 %wide, 0
  %count = select i1 %none, i64 0, i64 %wide
  ret i64 %count
}

; Whether threads are probably spinning: workers, or those of another runtime, which spin for
; milliseconds after a region.
define internal i1 @ready(ptr %pool, i64 %now) {
  %regionp = getelementptr i8, ptr %pool, i64 @REGION@
  %endp = getelementptr i8, ptr %pool, i64 @REGION_END@
  %region = load atomic ptr, ptr %regionp monotonic, align 8
  %end = load atomic i64, ptr %endp monotonic, align 8
  %gap = sub i64 %now, %end
  %recent = icmp ult i64 %gap, @REGION_SPIN_NS@
  %count = call i64 @awake(ptr %pool)
  %any = icmp ne i64 %count, 0
  %workers_run = icmp eq ptr %region, null
  %result = select i1 %workers_run, i1 %any, i1 %recent
  ret i1 %result
}

; Records a launch at `now` that is long enough for spinning workers. Returns whether at least SERIES
; such launches have followed each other closely, so that woken workers would still be spinning.
define internal i1 @in_series(ptr %pool, i64 %now, i64 %estimate) {
  %lastp = getelementptr i8, ptr %pool, i64 @LAST@
  %streakp = getelementptr i8, ptr %pool, i64 @STREAK@
  %last = load atomic i64, ptr %lastp monotonic, align 8
  %streak = load atomic i64, ptr %streakp monotonic, align 8
  %gap = sub i64 %now, %last
  %most = add i64 %estimate, @SERIES_NS@
  %close = icmp ult i64 %gap, %most
  %longer = add i64 %streak, 1
  %streak2 = select i1 %close, i64 %longer, i64 0
  store atomic i64 %now, ptr %lastp monotonic, align 8
  store atomic i64 %streak2, ptr %streakp monotonic, align 8
  %series = icmp uge i64 %streak2, @SERIES@
  ret i1 %series
}

; The main loop of a worker, which never returns: spin, then sleep, until the epoch changes; join the
; job if it is open and below its limit; run; leave.
; The word STATE: bits 0-15 active workers, 16-30 limit, 31 open, 32-63 epoch.
define internal ptr @worker(ptr %pool) {
entry:
  %state = getelementptr i8, ptr %pool, i64 @STATE@
  %work = getelementptr i8, ptr %pool, i64 @WORK@
  %done = getelementptr i8, ptr %pool, i64 @DONE@
  %sleepers = getelementptr i8, ptr %pool, i64 @SLEEPERS@
  %waiting = getelementptr i8, ptr %pool, i64 @WAITING@
  %neededp = getelementptr i8, ptr %pool, i64 @SCRATCH@
  %workersp = getelementptr i8, ptr %pool, i64 @WORKERS@
  %order = atomicrmw add ptr %workersp, i32 1 monotonic
  %order64 = zext i32 %order to i64
  %countp = getelementptr i8, ptr %pool, i64 @RANGE_COUNT@
  %own = alloca ptr
  store ptr null, ptr %own
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %epoch, %skip ], [ %epoch, %finish ], [ %epoch, %notify ]
  %size = phi i64 [ 0, %entry ], [ %size, %skip ], [ %size2, %finish ], [ %size2, %notify ]
  br label %spin
spin:
  %i = phi i64 [ 0, %idle ], [ %i2, %more ]
  %s0 = load atomic i64, ptr %state acquire, align 8
  %e0 = lshr i64 %s0, 32
  %new0 = icmp ne i64 %e0, %seen
  br i1 %new0, label %join, label %more
more:
  @PAUSE@
  %i2 = add i64 %i, 1
  %go = icmp ult i64 %i2, @SPINS@
  br i1 %go, label %spin, label %sleep
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %pool)
  %old = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %check
check:
  %s1 = load atomic i64, ptr %state seq_cst, align 8
  %e1 = lshr i64 %s1, 32
  %new1 = icmp ne i64 %e1, %seen
  br i1 %new1, label %wake, label %doze
doze:
  %w = call i32 @pthread_cond_wait(ptr %work, ptr %pool)
  br label %check
wake:
  %old2 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %join
join:
  %s = load atomic i64, ptr %state acquire, align 8
  %epoch = lshr i64 %s, 32
  %openbit = and i64 %s, 2147483648
  %open = icmp ne i64 %openbit, 0
  %active = and i64 %s, 65535
  %shifted = lshr i64 %s, 16
  %limit = and i64 %shifted, 32767
  %room = icmp ult i64 %active, %limit
  %may = and i1 %open, %room
  br i1 %may, label %try, label %skip
skip:
  br label %idle
try:
  %s3 = add i64 %s, 1
  %swap = cmpxchg ptr %state, i64 %s, i64 %s3 acq_rel monotonic
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %prepare, label %join
prepare:
  %needed = load i64, ptr %neededp
  %fits = icmp ule i64 %needed, %size
  br i1 %fits, label %runs, label %enlarge
enlarge:
  %before = load ptr, ptr %own
  call void @free(ptr %before)
  store ptr null, ptr %own
  %rc = call i32 @posix_memalign(ptr %own, i64 64, i64 %needed)
  %got = icmp eq i32 %rc, 0
  br i1 %got, label %runs, label %without
without:
  ; Out of memory for scratch: leave the work to the other threads.
  store ptr null, ptr %own
  br label %leave
runs:
  %size1 = phi i64 [ %size, %prepare ], [ %needed, %enlarge ]
  %scratch = load ptr, ptr %own
  %now = call i64 @clock(i32 @MONOTONIC@)
  ; Start with the same range on each launch, for locality in this core's caches. Range 0 is the
  ; caller's.
  %ranges = load i64, ptr %countp
  %behind = sub i64 %ranges, 1
  %turn = urem i64 %order64, %behind
  %home = add i64 %turn, 1
  %all = call i64 @drain(ptr %pool, ptr %scratch, i64 %home, i64 %now, i64 9223372036854775807)
  br label %leave
leave:
  %size2 = phi i64 [ %size1, %runs ], [ 0, %without ]
  %last = atomicrmw sub ptr %state, i64 1 seq_cst
  %lastopen = and i64 %last, 2147549183
  %isend = icmp eq i64 %lastopen, 1
  br i1 %isend, label %maybe, label %finish
maybe:
  %waits = load atomic i32, ptr %waiting seq_cst, align 4
  %is = icmp ne i32 %waits, 0
  br i1 %is, label %notify, label %finish
notify:
  %l2 = call i32 @pthread_mutex_lock(ptr %pool)
  %g2 = call i32 @pthread_cond_signal(ptr %done)
  %u2 = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %idle
finish:
  br label %idle
}

; Works on the job owned by `ticket` and waits for its end: returns 0 if it has ended, 1 if the time
; budget (ns) was exceeded before.
define i64 @pool_help(ptr %pool, i64 %ticket, ptr %scratch, i64 %budget) {
entry:
  %owner = getelementptr i8, ptr %pool, i64 @OWNER@
  %holder = load atomic i64, ptr %owner acquire, align 8
  %ours = icmp eq i64 %holder, %ticket
  br i1 %ours, label %work, label %ended
work:
  %now = call i64 @clock(i32 @MONOTONIC@)
  %more = call i64 @take_part(ptr %pool, ptr %scratch, i64 %now, i64 %budget)
  ret i64 %more
ended:
  ret i64 0
}

; pool_help for the owner of the job; `now` is the current time.
define internal i64 @take_part(ptr %pool, ptr %scratch, i64 %now, i64 %budget) {
entry:
  %spec = alloca [2 x i64], align 8
  %part = alloca [4 x i64], align 8
  %regionp = getelementptr i8, ptr %pool, i64 @REGION@
  %region = load atomic ptr, ptr %regionp monotonic, align 8
  %owner = getelementptr i8, ptr %pool, i64 @OWNER@
  %state = getelementptr i8, ptr %pool, i64 @STATE@
  %done = getelementptr i8, ptr %pool, i64 @DONE@
  %waiting = getelementptr i8, ptr %pool, i64 @WAITING@
  %deadline = add i64 %now, %budget
  %workers_run = icmp eq ptr %region, null
  br i1 %workers_run, label %alone, label %together
alone:
  %all0 = call i64 @drain(ptr %pool, ptr %scratch, i64 0, i64 %now, i64 %deadline)
  br label %ran
together:
  %all1 = call i64 @run_region(ptr %pool, ptr %region, ptr %part, ptr %scratch, i64 %now, i64 %deadline)
  br label %ran
ran:
  %all = phi i64 [ %all0, %alone ], [ %all1, %together ]
  %some = icmp eq i64 %all, 0
  br i1 %some, label %later, label %close
close:
  %s0 = atomicrmw and ptr %state, i64 -2147483649 seq_cst
  br label %spin
spin:
  %i = phi i64 [ 0, %close ], [ %i2, %more ]
  %s1 = load atomic i64, ptr %state acquire, align 8
  %a1 = and i64 %s1, 65535
  %none1 = icmp eq i64 %a1, 0
  br i1 %none1, label %release, label %more
more:
  @PAUSE@
  %i2 = add i64 %i, 1
  %go = icmp ult i64 %i2, @SPINS@
  br i1 %go, label %spin, label %sleep
sleep:
  %real = call i64 @clock(i32 @REALTIME@)
  %until = add i64 %real, %budget
  %secs = udiv i64 %until, 1000000000
  %nanos = urem i64 %until, 1000000000
  %nanosp = getelementptr i8, ptr %spec, i64 8
  store i64 %secs, ptr %spec
  store i64 %nanos, ptr %nanosp
  %l = call i32 @pthread_mutex_lock(ptr %pool)
  store atomic i32 1, ptr %waiting seq_cst, align 4
  br label %check
check:
  %s2 = load atomic i64, ptr %state seq_cst, align 8
  %a2 = and i64 %s2, 65535
  %none2 = icmp eq i64 %a2, 0
  br i1 %none2, label %awake, label %doze
doze:
  %rc = call i32 @pthread_cond_timedwait(ptr %done, ptr %pool, ptr %spec)
  %signalled = icmp eq i32 %rc, 0
  br i1 %signalled, label %check, label %awake
awake:
  %finished = phi i1 [ true, %check ], [ false, %doze ]
  store atomic i32 0, ptr %waiting seq_cst, align 4
  %u = call i32 @pthread_mutex_unlock(ptr %pool)
  br i1 %finished, label %release, label %later
release:
  store atomic i64 0, ptr %owner release, align 8
  ret i64 0
later:
  ret i64 1
}

; Runs the job in a parallel region of another runtime's threads (`cpu.Team`). Returns as `drain`; in
; both cases no other thread of the team is in the job any more. `part` is memory for what the region
; is called with: the pool, the caller's scratch memory, the current time, and the result.
define internal i64 @run_region(ptr %pool, ptr %region, ptr %part, ptr %scratch, i64 %now,
                                i64 %deadline) {
  %state = getelementptr i8, ptr %pool, i64 @STATE@
  %teamp = getelementptr i8, ptr %pool, i64 @TEAM@
  %endp = getelementptr i8, ptr %pool, i64 @REGION_END@
  %scratchp = getelementptr i8, ptr %part, i64 8
  %nowp = getelementptr i8, ptr %part, i64 16
  %resultp = getelementptr i8, ptr %part, i64 24
  %pausep = getelementptr i8, ptr %pool, i64 @PAUSE_AT@
  store ptr %pool, ptr %part
  store ptr %scratch, ptr %scratchp
  store i64 %now, ptr %nowp
  store i64 %deadline, ptr %pausep
  store i64 0, ptr %resultp
  %opened = atomicrmw or ptr %state, i64 2147483648 seq_cst
  %team = load i64, ptr %teamp
  %threads = trunc i64 %team to i32
  call void %region(ptr @member, ptr %part, i32 %threads, i32 0)
  %end = call i64 @clock(i32 @MONOTONIC@)
  store atomic i64 %end, ptr %endp monotonic, align 8
  %result = load i64, ptr %resultp
  ret i64 %result
}

; What each thread of a parallel region runs. Number 0 is the launch's own thread.
define internal void @member(ptr %part) {
  %pool = load ptr, ptr %part
  %numberp = getelementptr i8, ptr %pool, i64 @MEMBER_NUMBER@
  %number_of = load ptr, ptr %numberp
  %number = call i32 %number_of()
  %first = icmp eq i32 %number, 0
  br i1 %first, label %lead, label %follow
lead:
  call void @lead(ptr %pool, ptr %part)
  ret void
follow:
  %wide = zext i32 %number to i64
  call void @follow(ptr %pool, i64 %wide)
  ret void
}

; The launch's own thread: works until no program is left, or until the deadline has passed and the
; other threads have left the job. Until then one of them may wait for a program with a lower number,
; which only this thread would run.
define internal void @lead(ptr %pool, ptr %part) {
entry:
  %state = getelementptr i8, ptr %pool, i64 @STATE@
  %scratchp = getelementptr i8, ptr %part, i64 8
  %nowp = getelementptr i8, ptr %part, i64 16
  %resultp = getelementptr i8, ptr %part, i64 24
  %pausep = getelementptr i8, ptr %pool, i64 @PAUSE_AT@
  %scratch = load ptr, ptr %scratchp
  %now = load i64, ptr %nowp
  %deadline = load i64, ptr %pausep
  br label %work
work:
  %start = phi i64 [ %now, %entry ], [ %later, %again ]
  %until = phi i64 [ %deadline, %entry ], [ 0, %again ]  ; 0: for one chunk
  %all = call i64 @drain(ptr %pool, ptr %scratch, i64 0, i64 %start, i64 %until)
  %s = atomicrmw and ptr %state, i64 -2147483649 seq_cst
  %done = icmp ne i64 %all, 0
  %active = and i64 %s, 65535
  %none = icmp eq i64 %active, 0
  %leave = or i1 %done, %none
  br i1 %leave, label %end, label %again
again:
  %later = call i64 @clock(i32 @MONOTONIC@)
  br label %work
end:
  store i64 %all, ptr %resultp
  ret void
}

; Another thread of the team: joins the job if it is open and below its limit, works until no program
; is left or the deadline has passed, leaves. Its scratch memory is kept by its number: there is one
; job at a time.
define internal void @follow(ptr %pool, i64 %number) {
entry:
  %state = getelementptr i8, ptr %pool, i64 @STATE@
  %memories = getelementptr i8, ptr %pool, i64 @MEMBERS@
  %neededp = getelementptr i8, ptr %pool, i64 @SCRATCH@
  %countp = getelementptr i8, ptr %pool, i64 @RANGE_COUNT@
  %known = icmp ult i64 %number, @MOST_MEMBERS@
  br i1 %known, label %join, label %end
join:
  %s = load atomic i64, ptr %state acquire, align 8
  %openbit = and i64 %s, 2147483648
  %open = icmp ne i64 %openbit, 0
  %active = and i64 %s, 65535
  %shifted = lshr i64 %s, 16
  %limit = and i64 %shifted, 32767
  %room = icmp ult i64 %active, %limit
  %may = and i1 %open, %room
  br i1 %may, label %try, label %end
try:
  %s1 = add i64 %s, 1
  %swap = cmpxchg ptr %state, i64 %s, i64 %s1 acq_rel monotonic
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %prepare, label %join
prepare:
  %offset = shl i64 %number, 4
  %own = getelementptr i8, ptr %memories, i64 %offset
  %sizep = getelementptr i8, ptr %own, i64 8
  %size = load i64, ptr %sizep
  %needed = load i64, ptr %neededp
  %fits = icmp ule i64 %needed, %size
  br i1 %fits, label %runs, label %enlarge
enlarge:
  %before = load ptr, ptr %own
  call void @free(ptr %before)
  store ptr null, ptr %own
  store i64 0, ptr %sizep
  %rc = call i32 @posix_memalign(ptr %own, i64 64, i64 %needed)
  %got = icmp eq i32 %rc, 0
  br i1 %got, label %enlarged, label %without
enlarged:
  store i64 %needed, ptr %sizep
  br label %runs
without:
  ; Out of memory for scratch: leave the work to the other threads.
  store ptr null, ptr %own
  br label %leave
runs:
  %scratch = load ptr, ptr %own
  %now = call i64 @clock(i32 @MONOTONIC@)
  %pausep = getelementptr i8, ptr %pool, i64 @PAUSE_AT@
  %deadline = load i64, ptr %pausep
  %ranges = load i64, ptr %countp
  %behind = sub i64 %ranges, 1
  %others = sub i64 %number, 1
  %turn = urem i64 %others, %behind
  %home = add i64 %turn, 1
  %all = call i64 @drain(ptr %pool, ptr %scratch, i64 %home, i64 %now, i64 %deadline)
  br label %leave
leave:
  %left = atomicrmw sub ptr %state, i64 1 seq_cst
  br label %end
end:
  ret void
}

; Drops the programs that no thread has taken, if `ticket` owns the job: sets each range to its end.
define void @pool_cancel(ptr %pool, i64 %ticket) {
  %owner = getelementptr i8, ptr %pool, i64 @OWNER@
  %holder = load atomic i64, ptr %owner acquire, align 8
  %ours = icmp eq i64 %holder, %ticket
  br i1 %ours, label %drop, label %end
drop:
  %countp = getelementptr i8, ptr %pool, i64 @RANGE_COUNT@
  %count = load i64, ptr %countp
  br label %loop
loop:
  %i = phi i64 [ 0, %drop ], [ %i2, %loop ]
  %range = call ptr @range_at(ptr %pool, i64 %i)
  %stopp = getelementptr i8, ptr %range, i64 8
  %stop = load i64, ptr %stopp
  store atomic i64 %stop, ptr %range monotonic, align 8
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; Runs the programs from `begin` on of the grid x * y * z, for at most `budget` ns. Returns
;   0   all programs have run;
;  -1   the job is published and unfinished: call pool_help until it returns 0;
;  >0   the first program that has not run (single-threaded): call pool_launch again with it.
; During the call the field RUNNING has the kernel's address; with concurrent launches, that of one
; of them.
define i64 @pool_launch(ptr %pool, ptr %fn, ptr %args, i64 %x, i64 %y, i64 %z, i64 %begin,
                        ptr %scratch, i64 %bytes, i64 %workers, i64 %ticket, i64 %budget) {
entry:
  %runningp = getelementptr i8, ptr %pool, i64 @RUNNING@
  %entriesp = getelementptr i8, ptr %pool, i64 @ENTRIES@
  %entries = load i64, ptr %entriesp
  %entries1 = add i64 %entries, 1
  store i64 %entries1, ptr %entriesp
  store ptr %fn, ptr %runningp
  %grid = alloca [3 x i32], align 4
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  %gy = getelementptr i8, ptr %grid, i64 4
  %gz = getelementptr i8, ptr %grid, i64 8
  store i32 %x32, ptr %grid
  store i32 %y32, ptr %gy
  store i32 %z32, ptr %gz
  %xy = mul i64 %x, %y
  %total = mul i64 %xy, %z
  %n = sub i64 %total, %begin
  %one = icmp ult i64 %n, 2
  br i1 %one, label %single, label %several
single:
  call void %fn(ptr %args, ptr %scratch, i64 %begin, i64 %total, ptr %grid)
  store ptr null, ptr %runningp
  ret i64 0
several:
  %start = call i64 @clock(i32 @MONOTONIC@)
  %deadline = add i64 %start, %budget
  %soon = add i64 %start, @SOON_NS@
  %alone = icmp slt i64 %workers, 1
  br i1 %alone, label %inline, label %lookup
lookup:
  %cost = call i64 @cost_of(ptr %pool, ptr %fn)
  %known = icmp ne i64 %cost, 0
  %estimate = call i64 @time_of(i64 %cost, i64 %n)
  %short_job = icmp ult i64 %estimate, @ASLEEP_NS@
  %weigh_it = and i1 %known, %short_job
  br i1 %weigh_it, label %weigh, label %share
weigh:
  ; Too short to wake workers for it, unless launches follow each other closely: then the workers
  ; keep spinning between them.
  %tiny = icmp ult i64 %estimate, @AWAKE_NS@
  br i1 %tiny, label %inline, label %consider
consider:
  %any_awake = call i1 @ready(ptr %pool, i64 %start)
  %series = call i1 @in_series(ptr %pool, i64 %start, i64 %estimate)
  %join_in = or i1 %any_awake, %series
  br i1 %join_in, label %share, label %inline
inline:
  %until = phi i64 [ %deadline, %several ], [ %soon, %weigh ], [ %soon, %consider ], [ %deadline, %share ]
  %from = phi i64 [ %begin, %several ], [ %begin, %weigh ], [ %begin, %consider ], [ %at, %share ]
  br label %loop
loop:
  %first = phi i64 [ %from, %inline ], [ %last, %next ]
  %c = phi i64 [ 1, %inline ], [ %c2, %next ]
  %t = phi i64 [ %start, %inline ], [ %t2, %next ]
  %end = add i64 %first, %c
  %last = call i64 @llvm.umin.i64(i64 %end, i64 %total)
  call void %fn(ptr %args, ptr %scratch, i64 %first, i64 %last, ptr %grid)
  %t2 = call i64 @clock(i32 @MONOTONIC@)
  %rest = icmp ult i64 %last, %total
  br i1 %rest, label %look, label %complete
complete:
  %spent = sub i64 %t2, %start
  %ran = sub i64 %total, %from
  call void @record_cost(ptr %pool, ptr %fn, i64 %spent, i64 %ran)
  store ptr null, ptr %runningp
  ret i64 0
look:
  %late = icmp sgt i64 %t2, %until
  br i1 %late, label %stop, label %next
next:
  ; Reading the clock takes as long as a small program: chunks grow by 16 below 60 us, by 2 below
  ; 1 ms, and are halved above.
  %dt = sub i64 %t2, %t
  %quick = icmp ult i64 %dt, 60000
  %short = icmp ult i64 %dt, 1000000
  %many = shl i64 %c, 4
  %double = shl i64 %c, 1
  %half = lshr i64 %c, 1
  %fewer = call i64 @llvm.umax.i64(i64 %half, i64 1)
  %more = select i1 %quick, i64 %many, i64 %double
  %c2 = select i1 %short, i64 %more, i64 %fewer
  br label %loop
stop:
  ; The time is over: return if the budget is used up; otherwise the launch was estimated too low,
  ; and its remaining programs are published in the pool.
  %over = icmp sgt i64 %t2, %deadline
  br i1 %over, label %pause, label %share
pause:
  store ptr null, ptr %runningp
  ret i64 %last
share:
  %at = phi i64 [ %begin, %lookup ], [ %begin, %consider ], [ %last, %stop ]
  %now = phi i64 [ %start, %lookup ], [ %start, %consider ], [ %t2, %stop ]
  %price = phi i64 [ %cost, %lookup ], [ %cost, %consider ], [ 0, %stop ]
  %wakes = phi i1 [ true, %lookup ], [ %series, %consider ], [ true, %stop ]
  %owner = getelementptr i8, ptr %pool, i64 @OWNER@
  %swap = cmpxchg ptr %owner, i64 0, i64 %ticket acq_rel monotonic
  %got = extractvalue { i64, i1 } %swap, 1
  br i1 %got, label %publish, label %inline
publish:
  %fnp = getelementptr i8, ptr %pool, i64 @FN@
  %argsp = getelementptr i8, ptr %pool, i64 @ARGS@
  %gridx = getelementptr i8, ptr %pool, i64 @GRID@
  %gridy = getelementptr i8, ptr %gridx, i64 4
  %gridz = getelementptr i8, ptr %gridx, i64 8
  %bytesp = getelementptr i8, ptr %pool, i64 @SCRATCH@
  %statep = getelementptr i8, ptr %pool, i64 @STATE@
  %left = sub i64 %total, %at
  %useful = call i64 @divide(ptr %pool, i64 %price, i64 %left, i64 %workers)
  store ptr %fn, ptr %fnp
  store ptr %args, ptr %argsp
  store i32 %x32, ptr %gridx
  store i32 %y32, ptr %gridy
  store i32 %z32, ptr %gridz
  store i64 %bytes, ptr %bytesp
  %threads = add i64 %useful, 1
  %teamp = getelementptr i8, ptr %pool, i64 @TEAM@
  %team = add i64 %workers, 1
  store i64 %team, ptr %teamp
  call void @partition(ptr %pool, i64 %at, i64 %left, i64 %threads)
  %s = load atomic i64, ptr %statep monotonic, align 8
  %e = lshr i64 %s, 32
  %e1 = add i64 %e, 1
  %high = shl i64 %e1, 32
  %limit = shl i64 %useful, 16
  %low = or i64 %limit, 2147483648
  %s1 = or i64 %high, %low
  store atomic i64 %s1, ptr %statep seq_cst, align 8
  br i1 %wakes, label %wake_up, label %go
wake_up:
  call void @wake(ptr %pool, i64 %useful)
  br label %go
go:
  %r = call i64 @take_part(ptr %pool, ptr %scratch, i64 %now, i64 %budget)
  %status = sub i64 0, %r
  store ptr null, ptr %runningp
  ret i64 %status
}

; The number of workers that a job of `left` programs of a cost (0: unknown) can use. Stores the
; initial grain size (programs per chunk), and whether the job is brief.
define internal i64 @divide(ptr %pool, i64 %cost, i64 %left, i64 %workers) {
entry:
  %briefp = getelementptr i8, ptr %pool, i64 @BRIEF@
  %grainp = getelementptr i8, ptr %pool, i64 @GRAIN@
  %others = sub i64 %left, 1
  %all = call i64 @llvm.umin.i64(i64 %workers, i64 %others)
  %unknown = icmp eq i64 %cost, 0
  br i1 %unknown, label %done, label %known
known:
  %time = call i64 @time_of(i64 %cost, i64 %left)
  %busy = udiv i64 %time, @SHARE_NS@
  %some = call i64 @llvm.umax.i64(i64 %busy, i64 1)
  %few = call i64 @llvm.umin.i64(i64 %all, i64 %some)
  %short = icmp ult i64 %time, @BRIEF_NS@
  %chunk = udiv i64 @CHUNK@, %cost
  %chunk1 = call i64 @llvm.umax.i64(i64 %chunk, i64 1)
  br label %done
done:
  %useful = phi i64 [ %all, %entry ], [ %few, %known ]
  %whole = phi i1 [ false, %entry ], [ %short, %known ]
  %grain = phi i64 [ 1, %entry ], [ %chunk1, %known ]
  %brief = zext i1 %whole to i64
  store i64 %brief, ptr %briefp
  store i64 %grain, ptr %grainp
  ret i64 %useful
}

; The time of `n` programs of a cost, in ns; `n` is clamped to 2**24 against overflow.
define internal i64 @time_of(i64 %cost, i64 %n) {
  %counted = call i64 @llvm.umin.i64(i64 %n, i64 16777216)
  %fine = mul i64 %cost, %counted
  %time = lshr i64 %fine, 10
  ret i64 %time
}

; Wakes as many sleeping workers as the job can use in addition to those that are awake. None, if the
; job will run in a parallel region.
define internal void @wake(ptr %pool, i64 %useful) {
entry:
  %regionp = getelementptr i8, ptr %pool, i64 @REGION@
  %region = load atomic ptr, ptr %regionp monotonic, align 8
  %workers_run = icmp eq ptr %region, null
  br i1 %workers_run, label %count, label %end
count:
  %sleepersp = getelementptr i8, ptr %pool, i64 @SLEEPERS@
  %work = getelementptr i8, ptr %pool, i64 @WORK@
  %asleep = load atomic i32, ptr %sleepersp seq_cst, align 4
  %asleep64 = zext i32 %asleep to i64
  %ready = call i64 @awake(ptr %pool)
  %spinning = call i64 @llvm.umin.i64(i64 %ready, i64 %useful)
  %missing = sub i64 %useful, %spinning
  %n = call i64 @llvm.umin.i64(i64 %asleep64, i64 %missing)
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %lock
lock:
  %l = call i32 @pthread_mutex_lock(ptr %pool)
  br label %loop
loop:
  %i = phi i64 [ 0, %lock ], [ %i2, %loop ]
  %rc = call i32 @pthread_cond_signal(ptr %work)
  %i2 = add i64 %i, 1
  %go = icmp ult i64 %i2, %n
  br i1 %go, label %loop, label %unlock
unlock:
  %u = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %end
end:
  ret void
}

; The memory of faults.py.
@tilewright_faults = external global i8

; The handler of memory faults; see faults.py.
define void @pool_fault(i32 %signal, ptr %info, ptr %context) {
entry:
  %poolp = getelementptr i8, ptr @tilewright_faults, i64 @FAULT_POOL@
  %pool = load ptr, ptr %poolp
  %runningp = getelementptr i8, ptr %pool, i64 @RUNNING@
  %running = load ptr, ptr %runningp
  %none = icmp eq ptr %running, null
  br i1 %none, label %restore, label %search
search:
  %firstp = getelementptr i8, ptr @tilewright_faults, i64 @FAULT_REPORTS@
  br label %next
next:
  %linkp = phi ptr [ %firstp, %search ], [ %report, %other ]
  %report = load ptr, ptr %linkp
  %end = icmp eq ptr %report, null
  br i1 %end, label %restore, label %look
look:
  %fnp = getelementptr i8, ptr %report, i64 8
  %fn = load ptr, ptr %fnp
  %found = icmp eq ptr %fn, %running
  br i1 %found, label %say, label %other
other:
  br label %next
say:
  %textp = getelementptr i8, ptr %report, i64 16
  %text = load ptr, ptr %textp
  %lengthp = getelementptr i8, ptr %report, i64 24
  %length = load i64, ptr %lengthp
  %written = call i64 @write(i32 2, ptr %text, i64 %length)
  br label %restore
restore:
  %is_segv = icmp eq i32 %signal, @SEGV_NUMBER@
  %offset = select i1 %is_segv, i64 @FAULT_SEGV@, i64 @FAULT_BUS@
  %before = getelementptr i8, ptr @tilewright_faults, i64 %offset
  %set = call i32 @sigaction(i32 %signal, ptr %before, ptr null)
  ; The instruction that faulted is executed again on return. A signal that was sent is sent again.
  %codep = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %codep
  %sent = icmp slt i32 %code, 1
  br i1 %sent, label %resend, label %out
resend:
  %raised = call i32 @raise(i32 %signal)
  br label %out
out:
  ret void
}
