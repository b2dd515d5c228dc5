; Running a variant that has run before, on the CPU's thread pool or through the CUDA driver.

; The grid, then the programs; gives the compiled kernel. Frame.recent is borrowed, and the grid
; function may run any code: what is needed of it is read and held first.
define internal ptr @start(ptr %rt, ptr %state, ptr %frame, ptr %grid, ptr %args,
                           i64 %nargs, ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %recent = get ptr Frame.recent of %frame
  %entry_object = get ptr Recent.entry of %recent
  %record = get ptr Recent.record of %recent
  %kernel = get ptr Record.kernel of %record
  api void Py_IncRef(ptr %entry_object)
  api void Py_IncRef(ptr %kernel)
  set ptr null in Frame.grid_object of %frame
  %any = call i32 @extents(ptr %rt, ptr %state, ptr %frame, ptr %grid)
  switch i32 %any, label %fail [ i32 $EMPTY, label %done
                                 i32 $SOME, label %device ]
device:
  %result = call i32 @start_on_device(ptr %rt, ptr %frame, ptr %record)
  switch i32 %result, label %fail [ i32 $STARTED, label %done
                                    i32 $LEFT, label %slow ]
done:
  api void Py_DecRef(ptr %entry_object)
  call void @drop_grid(ptr %rt, ptr %frame)
  ret ptr %kernel
slow:
  ; A grid function has been called: its result stands in for it.
  api void Py_DecRef(ptr %entry_object)
  api void Py_DecRef(ptr %kernel)
  %plain = get ptr Frame.grid_object of %frame
  %python = get ptr State.fallback of %state
  %ran = call ptr @fall_back(ptr %rt, ptr %python, ptr %plain,
                             ptr %args, i64 %nargs, ptr %kwnames)
  call void @drop_grid(ptr %rt, ptr %frame)
  ret ptr %ran
fail:
  api void Py_DecRef(ptr %entry_object)
  api void Py_DecRef(ptr %kernel)
  call void @drop_grid(ptr %rt, ptr %frame)
  ret ptr null
}

; The programs of Frame.grid: $STARTED, $LEFT for Python to do it, or $FAILED with an exception set.
define internal i32 @start_on_device(ptr %rt, ptr %frame,
                                     ptr %record) nounwind "frame-pointer"="all" {
entry:
  %kind = get i64 Record.kind of %record
  %on_cpu = icmp eq i64 %kind, $CPU
  br i1 %on_cpu, label %cpu, label %cuda
cpu:
  %r0 = call i32 @start_cpu(ptr %rt, ptr %frame, ptr %record)
  ret i32 %r0
cuda:
  %r1 = call i32 @start_cuda(ptr %rt, ptr %frame, ptr %record)
  ret i32 %r1
}

; Gives up Frame.grid_object, which is null until the grid is known.
define internal void @drop_grid(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %object = get ptr Frame.grid_object of %frame
  %none = icmp eq ptr %object, null
  br i1 %none, label %done, label %drop
drop:
  api void Py_DecRef(ptr %object)
  br label %done
done:
  ret void
}

; -- the grid -----------------------------------------------------------------------------------

; Fills Frame.grid, and Frame.grid_object with what it was read from; $SOME, $EMPTY when an extent is
; 0, or $FAILED with an exception set.
define internal i32 @extents(ptr %rt, ptr %state, ptr %frame,
                             ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  %type = get ptr Object.type of %grid
  %tuple_type = get ptr Runtime.tuple of %rt
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %plain, label %other
other:
  %callable = api i32 PyCallable_Check(ptr %grid)
  %is_callable = icmp ne i32 %callable, 0
  br i1 %is_callable, label %arguments, label %plain
plain:
  api void Py_IncRef(ptr %grid)
  br label %check
arguments:
  %named = call ptr @arguments_of(ptr %rt, ptr %state, ptr %frame, ptr %grid)
  %failed = icmp eq ptr %named, null
  br i1 %failed, label %fail, label %ask
ask:
  store ptr %named, ptr %argument
  %given = api ptr PyObject_Vectorcall(ptr %grid, ptr %argument, i64 1, ptr null)
  api void Py_DecRef(ptr %named)
  %raised = icmp eq ptr %given, null
  br i1 %raised, label %fail, label %check
check:
  %object = phi ptr [ %grid, %plain ], [ %given, %ask ]
  set ptr %object in Frame.grid_object of %frame
  %result = call i32 @checked_extents(ptr %rt, ptr %frame, ptr %object)
  ret i32 %result
fail:
  ret i32 $FAILED
}

; The arguments by name, for a grid function: a new dictionary. One that does nothing but look into
; it gets those at which it looks, by State.note_grid(code), alone.
define internal ptr @arguments_of(ptr %rt, ptr %state, ptr %frame,
                                  ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  %type = get ptr Object.type of %grid
  %function_type = get ptr Runtime.function of %rt
  %is_function = icmp eq ptr %type, %function_type
  br i1 %is_function, label %make, label %all
make:
  ; First of all, as what the garbage collector finds may launch this very kernel.
  %named = api ptr PyDict_New()
  %failed = icmp eq ptr %named, null
  br i1 %failed, label %done, label %look
look:
  %code = api ptr PyFunction_GetCode(ptr %grid)
  %met = call ptr @grid_of(ptr %state, ptr %code)
  %new = icmp eq ptr %met, null
  br i1 %new, label %note, label %few
note:
  %function = get ptr State.note_grid of %state
  store ptr %code, ptr %argument
  %noted = api ptr PyObject_Vectorcall(ptr %function, ptr %argument, i64 1, ptr null)
  %raised = icmp eq ptr %noted, null
  br i1 %raised, label %drop, label %drop_none
drop_none:
  api void Py_DecRef(ptr %noted)
  api void Py_DecRef(ptr %named)
  br label %all
few:
  %count = get i64 Grid.count of %met
  %any = icmp eq i64 %count, $ALL_NAMES
  br i1 %any, label %drop_empty, label %test
drop_empty:
  api void Py_DecRef(ptr %named)
  br label %all
test:
  %i = phi i64 [ 0, %few ], [ %i2, %put ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %put, label %done
put:
  %numbers = at Grid.numbers of %met
  %number_at = getelementptr i64, ptr %numbers, i64 %i
  %number = load i64, ptr %number_at
  %param = call ptr @param(ptr %state, i64 %number)
  %name = get ptr Param.name of %param
  %values = at Frame.values of %frame
  %value_at = getelementptr ptr, ptr %values, i64 %number
  %value = load ptr, ptr %value_at
  %r0 = api i32 PyDict_SetItem(ptr %named, ptr %name, ptr %value)
  %set = icmp eq i32 %r0, 0
  %i2 = add i64 %i, 1
  br i1 %set, label %test, label %drop
drop:
  api void Py_DecRef(ptr %named)
  br label %fail
all:
  %every = call ptr @arguments_by_name(ptr %rt, ptr %state, ptr %frame)
  ret ptr %every
done:
  ret ptr %named
fail:
  ret ptr null
}

; What is known of grid functions of this code; null when nothing is.
define internal ptr @grid_of(ptr %state, ptr %code) nounwind alwaysinline {
entry:
  %grids = get ptr State.grids of %state
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %offset = mul i64 %i, $Grid.size
  %grid = getelementptr i8, ptr %grids, i64 %offset
  %theirs = get ptr Grid.code of %grid
  %same = icmp eq ptr %theirs, %code
  br i1 %same, label %found, label %next
next:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, $GRIDS
  br i1 %more, label %look, label %absent
found:
  ret ptr %grid
absent:
  ret ptr null
}

; All arguments by name: a new dictionary. It is copied from one that has the names and the last
; launch's numbers, so that none grows and few entries are set.
define internal ptr @arguments_by_name(ptr %rt, ptr %state,
                                       ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %template = get ptr State.names of %state
  %count = get i64 State.count of %state
  %noted = at State.numbers of %state
  %values = at Frame.values of %frame
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %compare, label %copy
compare:
  %at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %at
  %noted_at = getelementptr ptr, ptr %noted, i64 %i
  %before = load ptr, ptr %noted_at
  %same = icmp eq ptr %value, %before
  br i1 %same, label %next, label %classify
classify:
  %plain = call i1 @is_plain(ptr %rt, ptr %value)
  br i1 %plain, label %note, label %next
note:
  %number_param = call ptr @param(ptr %state, i64 %i)
  %number_name = get ptr Param.name of %number_param
  %r0 = api i32 PyDict_SetItem(ptr %template, ptr %number_name, ptr %value)
  %held = icmp eq i32 %r0, 0
  br i1 %held, label %keep, label %fail
keep:
  store ptr %value, ptr %noted_at
  br label %next
next:
  %i2 = add i64 %i, 1
  br label %look
copy:
  %named = api ptr PyDict_Copy(ptr %template)
  %failed = icmp eq ptr %named, null
  br i1 %failed, label %done, label %test
test:
  %k = phi i64 [ 0, %copy ], [ %k2, %on ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %check, label %done
check:
  %given_at = getelementptr ptr, ptr %values, i64 %k
  %given = load ptr, ptr %given_at
  %there_at = getelementptr ptr, ptr %noted, i64 %k
  %there = load ptr, ptr %there_at
  %right = icmp eq ptr %given, %there
  br i1 %right, label %on, label %put
put:
  %param = call ptr @param(ptr %state, i64 %k)
  %name = get ptr Param.name of %param
  %r1 = api i32 PyDict_SetItem(ptr %named, ptr %name, ptr %given)
  br label %on
on:
  %k2 = add i64 %k, 1
  br label %test
done:
  ret ptr %named
fail:
  ret ptr null
}

; Whether an object is a number that may be kept for as long as its kernel.
define internal i1 @is_plain(ptr %rt, ptr %object) nounwind alwaysinline {
  %type = get ptr Object.type of %object
  %int = get ptr Runtime.int of %rt
  %float = get ptr Runtime.float of %rt
  %bool = get ptr Runtime.bool of %rt
  %is_int = icmp eq ptr %type, %int
  %is_float = icmp eq ptr %type, %float
  %is_bool = icmp eq ptr %type, %bool
  %either = or i1 %is_int, %is_float
  %plain = or i1 %either, %is_bool
  ret i1 %plain
}

; The extents that a grid which is no function gives; Python has the last word on unusual ones.
define internal i32 @checked_extents(ptr %rt, ptr %frame,
                                     ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  %plain = call i32 @plain_extents(ptr %rt, ptr %frame, ptr %grid)
  %unusual = icmp eq i32 %plain, $FAILED
  br i1 %unusual, label %ask, label %done
ask:
  store ptr %grid, ptr %argument
  %function = get ptr Runtime.extents_of of %rt
  %checked = api ptr PyObject_Vectorcall(ptr %function, ptr %argument, i64 1, ptr null)
  %raised = icmp eq ptr %checked, null
  br i1 %raised, label %fail, label %again
again:
  %result = call i32 @plain_extents(ptr %rt, ptr %frame, ptr %checked)
  api void Py_DecRef(ptr %checked)
  %beyond = icmp eq i32 %result, $FAILED
  br i1 %beyond, label %large, label %settled
settled:
  ret i32 %result
large:
  ; Beyond 64 bits: no device has such a grid, and each says so in its own words.
  %sizes = at Frame.grid of %frame
  %second = getelementptr i8, ptr %sizes, i64 8
  %third = getelementptr i8, ptr %sizes, i64 16
  store i64 $INT64_MAX, ptr %sizes
  store i64 $INT64_MAX, ptr %second
  store i64 $INT64_MAX, ptr %third
  ret i32 $SOME
done:
  ret i32 %plain
fail:
  ret i32 $FAILED
}

; The extents of a tuple of one to three ints of 0 or more; $FAILED, without an exception, for
; anything else.
define internal i32 @plain_extents(ptr %rt, ptr %frame,
                                   ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %overflow = alloca i32
  %sizes = at Frame.grid of %frame
  %second = getelementptr i8, ptr %sizes, i64 8
  %third = getelementptr i8, ptr %sizes, i64 16
  store i64 1, ptr %second
  store i64 1, ptr %third
  %type = get ptr Object.type of %grid
  %tuple_type = get ptr Runtime.tuple of %rt
  %int_type = get ptr Runtime.int of %rt
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %measure, label %no
measure:
  %count = call i64 @size_of(ptr %grid)
  %less = sub i64 %count, 1
  %right = icmp ult i64 %less, 3
  br i1 %right, label %test, label %no
test:
  %i = phi i64 [ 0, %measure ], [ %i2, %next ]
  %empty = phi i1 [ false, %measure ], [ %empty2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %done
look:
  %object = call ptr @item(ptr %grid, i64 %i)
  %object_type = get ptr Object.type of %object
  %is_int = icmp eq ptr %object_type, %int_type
  br i1 %is_int, label %convert, label %no
convert:
  %n = api i64 PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  %natural = icmp sge i64 %n, 0
  %good = and i1 %fits, %natural
  br i1 %good, label %next, label %no
next:
  %at = getelementptr i64, ptr %sizes, i64 %i
  store i64 %n, ptr %at
  %zero = icmp eq i64 %n, 0
  %empty2 = or i1 %empty, %zero
  %i2 = add i64 %i, 1
  br label %test
done:
  %result = select i1 %empty, i32 $EMPTY, i32 $SOME
  ret i32 %result
no:
  ret i32 $FAILED
}

; Frame.grid as a tuple of Python's.
define internal ptr @grid_tuple(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %sizes = at Frame.grid of %frame
  %tuple = api ptr PyTuple_New(i64 3)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %fail, label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %put ]
  %more = icmp ult i64 %i, 3
  br i1 %more, label %convert, label %done
convert:
  %at = getelementptr i64, ptr %sizes, i64 %i
  %n = load i64, ptr %at
  %number = api ptr PyLong_FromLongLong(i64 %n)
  %none = icmp eq ptr %number, null
  br i1 %none, label %drop, label %put
put:
  %rc = api i32 PyTuple_SetItem(ptr %tuple, i64 %i, ptr %number)
  %i2 = add i64 %i, 1
  br label %test
done:
  ret ptr %tuple
drop:
  api void Py_DecRef(ptr %tuple)
  br label %fail
fail:
  ret ptr null
}

; -- arguments ----------------------------------------------------------------------------------

; The slots that the kernel has arguments for, in its order, into Frame.packed, and their addresses
; into Frame.pointers, by which the driver reads them. A float becomes an fp32 where the kernel takes
; one; everything else is already what a slot holds.
define internal void @pack(ptr %frame, ptr %record) nounwind {
entry:
  %count = get i64 Record.count of %record
  %plan = at Record.slots of %record
  %slots = at Frame.slots of %frame
  %packed = at Frame.packed of %frame
  %pointers = at Frame.pointers of %frame
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %put ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %load, label %done
load:
  %step_at = getelementptr i64, ptr %plan, i64 %i
  %step = load i64, ptr %step_at
  %index = and i64 %step, 255
  %from = getelementptr i64, ptr %slots, i64 %index
  %bits = load i64, ptr %from
  %rounded = and i64 %step, $TO_FP32
  %is_plain = icmp eq i64 %rounded, 0
  br i1 %is_plain, label %put, label %round
round:
  %double = bitcast i64 %bits to double
  %single = fptrunc double %double to float
  %narrow = bitcast float %single to i32
  %wide = zext i32 %narrow to i64
  br label %put
put:
  %value = phi i64 [ %bits, %load ], [ %wide, %round ]
  %to = getelementptr i64, ptr %packed, i64 %i
  store i64 %value, ptr %to
  %at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %to, ptr %at
  %i2 = add i64 %i, 1
  br label %test
done:
  ret void
}

; -- the CPU ------------------------------------------------------------------------------------

; As @start_on_device; all programs have run when it returns.
define internal i32 @start_cpu(ptr %rt, ptr %frame, ptr %record) nounwind "frame-pointer"="all" {
entry:
  %pool = get ptr Runtime.pool of %rt
  %gone = icmp eq ptr %pool, null
  br i1 %gone, label %left, label %size
size:
  %gridp = at Frame.grid of %frame
  %yp = getelementptr i8, ptr %gridp, i64 8
  %zp = getelementptr i8, ptr %gridp, i64 16
  %x = load i64, ptr %gridp
  %y = load i64, ptr %yp
  %z = load i64, ptr %zp
  %c0 = icmp ult i64 %x, $EXTENT_LIMIT
  %c1 = icmp ult i64 %y, $EXTENT_LIMIT
  %c2 = icmp ult i64 %z, $EXTENT_LIMIT
  %xy = mul i64 %x, %y
  %c3 = icmp ult i64 %xy, $EXTENT_LIMIT
  %c01 = and i1 %c0, %c1
  %c23 = and i1 %c2, %c3
  %c = and i1 %c01, %c23
  br i1 %c, label %threads, label %left
threads:
  %workers = call i64 @workers(ptr %rt, ptr %record)
  %therep = get ptr Runtime.pool_workers of %rt
  %there = load i64, ptr %therep
  %enough = icmp ule i64 %workers, %there
  br i1 %enough, label %memory, label %left
memory:
  call void @pack(ptr %frame, ptr %record)
  %bytes = get i64 Record.scratch of %record
  %none = icmp eq i64 %bytes, 0
  br i1 %none, label %run, label %allocate
allocate:
  %room = add i64 %bytes, 63
  %block = api ptr PyMem_RawMalloc(i64 %room)
  %short = icmp eq ptr %block, null
  %start = ptrtoint ptr %block to i64
  %past = add i64 %start, 63
  %rounded = and i64 %past, -64
  %aligned = inttoptr i64 %rounded to ptr
  br i1 %short, label %left, label %run
run:
  %mine = phi ptr [ null, %memory ], [ %block, %allocate ]
  %scratch = phi ptr [ null, %memory ], [ %aligned, %allocate ]
  %result = call i32 @run_on_pool(ptr %rt, ptr %frame, ptr %record, ptr %pool, ptr %scratch,
                                  i64 %workers)
  api void PyMem_RawFree(ptr %mine)
  ret i32 %result
left:
  ret i32 $LEFT
}

; How many worker threads may take part; as many as no pool has when a setting is unusual.
define internal i64 @workers(ptr %rt, ptr %record) nounwind "frame-pointer"="all" {
entry:
  %own = get i64 Record.threads of %record
  %chosen = icmp ne i64 %own, 0
  br i1 %chosen, label %done, label %setting
setting:
  %knob = at Runtime.cpu_threads of %rt
  %set = call i64 @knob(ptr %rt, ptr %knob)
  %default = icmp eq i64 %set, 0
  br i1 %default, label %all, label %done
all:
  %every = get i64 Record.all_threads of %record
  br label %done
done:
  %threads = phi i64 [ %own, %entry ], [ %set, %setting ], [ %every, %all ]
  %workers = sub i64 %threads, 1
  ret i64 %workers
}

; The launch itself, without the GIL. Its ticket is the address of the frame, which no other launch
; has while this one lasts.
define internal i32 @run_on_pool(ptr %rt, ptr %frame, ptr %record, ptr %pool, ptr %scratch,
                                 i64 %workers) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  %gridp = at Frame.grid of %frame
  %yp = getelementptr i8, ptr %gridp, i64 8
  %zp = getelementptr i8, ptr %gridp, i64 16
  %x = load i64, ptr %gridp
  %y = load i64, ptr %yp
  %z = load i64, ptr %zp
  %packed = at Frame.packed of %frame
  %bytes = get i64 Record.scratch of %record
  %function = get ptr Record.function of %record
  %launch = get ptr Runtime.pool_launch of %rt
  %slice = get i64 Runtime.slice of %rt
  %ticket = ptrtoint ptr %frame to i64
  %thread = api ptr PyEval_SaveThread()
  %begin = call i64 %launch(ptr %pool, ptr %function, ptr %packed, i64 %x, i64 %y, i64 %z, i64 0,
                            ptr %scratch, i64 %bytes, i64 %workers, i64 %ticket, i64 %slice)
  api void PyEval_RestoreThread(ptr %thread)
  %over = icmp eq i64 %begin, 0
  br i1 %over, label %started, label %long
long:
  ; It lasts: Python goes on with it, and handles signals between the slices.
  %job = at Frame.job of %frame
  set ptr %function in Job.function of %job
  set ptr %packed in Job.args of %job
  set i64 %x in Job.x of %job
  set i64 %y in Job.y of %job
  set i64 %z in Job.z of %job
  set i64 %begin in Job.begin of %job
  set ptr %scratch in Job.scratch of %job
  set i64 %bytes in Job.scratch_bytes of %job
  set i64 %workers in Job.workers of %job
  set i64 %ticket in Job.ticket of %job
  %address = ptrtoint ptr %job to i64
  br label %tell
tell:
  ; Not to be given up: the pool's threads read this frame until the job has ended.
  %number = api ptr PyLong_FromLongLong(i64 %address)
  %short = icmp eq ptr %number, null
  br i1 %short, label %again, label %told
again:
  api void PyErr_Clear()
  br label %tell
told:
  store ptr %number, ptr %argument
  %function_object = get ptr Runtime.resume of %rt
  %done = api ptr PyObject_Vectorcall(ptr %function_object, ptr %argument, i64 1, ptr null)
  api void Py_DecRef(ptr %number)
  %failed = icmp eq ptr %done, null
  br i1 %failed, label %abandon, label %drop
drop:
  api void Py_DecRef(ptr %done)
  br label %started
started:
  ret i32 $STARTED
abandon:
  ; A signal handler may raise before the first line of Python's code runs.
  call void @abandon(ptr %rt, ptr %pool, i64 %ticket)
  ret i32 $FAILED
}

; Drops what has not started of a launch, and waits for the rest: it reads the launch's frame. Nothing
; happens when the launch has ended.
define internal void @abandon(ptr %rt, ptr %pool, i64 %ticket) nounwind "frame-pointer"="all" {
entry:
  %cancel = get ptr Runtime.pool_cancel of %rt
  %help = get ptr Runtime.pool_help of %rt
  %slice = get i64 Runtime.slice of %rt
  %thread = api ptr PyEval_SaveThread()
  call void %cancel(ptr %pool, i64 %ticket)
  br label %wait
wait:
  %more = call i64 %help(ptr %pool, i64 %ticket, ptr null, i64 %slice)
  %over = icmp eq i64 %more, 0
  br i1 %over, label %done, label %wait
done:
  api void PyEval_RestoreThread(ptr %thread)
  ret void
}

; -- CUDA ---------------------------------------------------------------------------------------

; As @start_on_device; the programs run after it returns.
define internal i32 @start_cuda(ptr %rt, ptr %frame, ptr %record) nounwind "frame-pointer"="all" {
entry:
  %current = alloca ptr
  %usable = get i64 Runtime.cuda_usable of %rt
  %gone = icmp eq i64 %usable, 0
  br i1 %gone, label %left, label %context
context:
  ; In another context, or none, Python switches first.
  %get_current = get ptr Record.get_current of %record
  %asked = call i32 %get_current(ptr %current)
  %found = load ptr, ptr %current
  %home = get ptr Record.context of %record
  %c0 = icmp eq i32 %asked, 0
  %c1 = icmp eq ptr %found, %home
  %here = and i1 %c0, %c1
  br i1 %here, label %size, label %left
size:
  %gridp = at Frame.grid of %frame
  %yp = getelementptr i8, ptr %gridp, i64 8
  %zp = getelementptr i8, ptr %gridp, i64 16
  %x = load i64, ptr %gridp
  %y = load i64, ptr %yp
  %z = load i64, ptr %zp
  %or0 = or i64 %x, %y
  %or1 = or i64 %or0, %z
  %small = icmp ult i64 %or1, $EXTENT_LIMIT
  br i1 %small, label %queue, label %left
queue:
  %found_stream = call i1 @find_stream(ptr %rt, ptr %record, ptr %current)
  br i1 %found_stream, label %launch, label %fail
launch:
  %stream = load ptr, ptr %current
  call void @pack(ptr %frame, ptr %record)
  %status = call i32 @launch_cuda(ptr %rt, ptr %frame, ptr %record, ptr %stream)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %note, label %refused
note:
  ; So that the error of a kernel that fails later can name it.
  %last_kernel = get ptr Record.last_kernel of %record
  %name = get ptr Record.name of %record
  store ptr %name, ptr %last_kernel
  br label %started
refused:
  call void @raise_refusal(ptr %rt, ptr %frame, ptr %record, i32 %status)
  br label %fail
started:
  ret i32 $STARTED
left:
  ret i32 $LEFT
fail:
  ret i32 $FAILED
}

; Puts the current stream of the record's device in `%out`; false with an exception set. A function of
; torch tells, by DLPack's interface where it can, else one of Python.
define internal i1 @find_stream(ptr %rt, ptr %record, ptr %out) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  %work_stream = get ptr Record.work_stream of %record
  %number = get i32 Record.device_number of %record
  %absent = icmp eq ptr %work_stream, null
  br i1 %absent, label %ask, label %native
native:
  %status = call i32 %work_stream(i32 $DL_CUDA, i32 %number, ptr %out)
  %told = icmp eq i32 %status, 0
  br i1 %told, label %done, label %clear
clear:
  ; Python knows what is wrong.
  api void PyErr_Clear()
  br label %ask
ask:
  %device = get ptr Record.device_index of %record
  %stream_of = get ptr Record.stream_of of %record
  store ptr %device, ptr %argument
  %handle = api ptr PyObject_Vectorcall(ptr %stream_of, ptr %argument, i64 1, ptr null)
  %no_stream = icmp eq ptr %handle, null
  br i1 %no_stream, label %fail, label %read
read:
  %stream = api ptr PyLong_AsVoidPtr(ptr %handle)
  api void Py_DecRef(ptr %handle)
  store ptr %stream, ptr %out
  %problem = api ptr PyErr_Occurred()
  %sound = icmp eq ptr %problem, null
  br i1 %sound, label %done, label %fail
done:
  ret i1 true
fail:
  ret i1 false
}

; The driver's call without the GIL, for it waits when the queue is full; its status.
define internal i32 @launch_cuda(ptr %rt, ptr %frame, ptr %record,
                                 ptr %stream) nounwind "frame-pointer"="all" {
entry:
  %gridp = at Frame.grid of %frame
  %yp = getelementptr i8, ptr %gridp, i64 8
  %zp = getelementptr i8, ptr %gridp, i64 16
  %x = load i32, ptr %gridp
  %y = load i32, ptr %yp
  %z = load i32, ptr %zp
  %pointers = at Frame.pointers of %frame
  %function = get ptr Record.function of %record
  %threads = get i32 Record.threads of %record
  %shared = get i32 Record.shared of %record
  %attributes = get ptr Record.attributes of %record
  %attribute_count = get i32 Record.attribute_count of %record
  %ctas = get i32 Record.ctas of %record
  %blocks = mul i32 %x, %ctas
  %call = get ptr Record.launch of %record
  %config = at Frame.config of %frame
  %plain = icmp eq i32 %attribute_count, 0
  %thread = api ptr PyEval_SaveThread()
  br i1 %plain, label %usual, label %extended
usual:
  %r0 = call i32 %call(ptr %function, i32 %x, i32 %y, i32 %z, i32 %threads, i32 1, i32 1,
                       i32 %shared, ptr %stream, ptr %pointers, ptr null)
  br label %done
extended:
  set i32 %blocks in LaunchConfig.grid_x of %config
  set i32 %y in LaunchConfig.grid_y of %config
  set i32 %z in LaunchConfig.grid_z of %config
  set i32 %threads in LaunchConfig.block_x of %config
  set i32 1 in LaunchConfig.block_y of %config
  set i32 1 in LaunchConfig.block_z of %config
  set i32 %shared in LaunchConfig.shared of %config
  set ptr %stream in LaunchConfig.stream of %config
  set ptr %attributes in LaunchConfig.attributes of %config
  set i32 %attribute_count in LaunchConfig.attribute_count of %config
  %r1 = call i32 %call(ptr %config, ptr %function, ptr %pointers, ptr null)
  br label %done
done:
  %status = phi i32 [ %r0, %usual ], [ %r1, %extended ]
  api void PyEval_RestoreThread(ptr %thread)
  ret i32 %status
}

; Raises what Record.refuse(status, grid) does.
define internal void @raise_refusal(ptr %rt, ptr %frame, ptr %record,
                                    i32 %status) nounwind "frame-pointer"="all" {
entry:
  %argv = alloca [2 x ptr]
  %second = getelementptr i8, ptr %argv, i64 8
  %wide = sext i32 %status to i64
  %number = api ptr PyLong_FromLongLong(i64 %wide)
  %short = icmp eq ptr %number, null
  br i1 %short, label %done, label %size
size:
  %grid = call ptr @grid_tuple(ptr %rt, ptr %frame)
  %failed = icmp eq ptr %grid, null
  br i1 %failed, label %drop, label %tell
tell:
  store ptr %number, ptr %argv
  store ptr %grid, ptr %second
  %refuse = get ptr Record.refuse of %record
  %never = api ptr PyObject_Vectorcall(ptr %refuse, ptr %argv, i64 2, ptr null)
  api void Py_DecRef(ptr %grid)
  br label %drop
drop:
  api void Py_DecRef(ptr %number)
  br label %done
done:
  ret void
}
