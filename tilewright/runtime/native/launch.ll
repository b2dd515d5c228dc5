; A launch in native code: `kernel[grid](*args, **kwargs)` from Python's call to the device's.
;
; This is LLVM IR with four abbreviations, which expand.py expands; Struct.field is in layout.py:
;
;   %r = get TYPE Struct.field of %p           load a field
;   set TYPE VALUE in Struct.field of %p       store one
;   %r = at Struct.field of %p                 its address
;   [%r =] api TYPE Function(ARGS)             call one of Python's C functions, by the table in %rt
;
; and `$NAME` for a number. All state is in the structures Runtime (one in a process), State (one
; for each kernel), Record (one for each compiled variant) and Frame (one for each call, on the
; stack), so that calls from several threads, from finalisers and from signal handlers are apart.
; The code refers to nothing by name: it may stand at any address.
;
; Whatever is unusual is left to Python, by @fall_back, before anything has happened. Functions give
; false, or null, for that, with no exception set.

; -- what Python calls --------------------------------------------------------------------------

; kernel[grid]: `self` is (box, owner); gives the builtin @launch with (self, grid) as self. State.spare
; is a list of the last one, which serves again when nobody has it and the grid is the same object.
define ptr @bind(ptr %self, ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %state = call ptr @state_in(ptr %self)
  %rt = get ptr State.runtime of %state
  %spare = get ptr State.spare of %state
  %kept = api ptr PyList_GetItem(ptr %spare, i64 0)
  %collected = icmp eq ptr %kept, null
  br i1 %collected, label %clear, label %count
clear:
  ; The kernel is garbage, and what its end calls launches it once more.
  api void PyErr_Clear()
  br label %new
count:
  %free = call i1 @is_held_once(ptr %kept)
  br i1 %free, label %look, label %new
look:
  %its_own = api ptr PyCFunction_GetSelf(ptr %kept)
  %its_grid = call ptr @item(ptr %its_own, i64 1)
  %same = icmp eq ptr %its_grid, %grid
  br i1 %same, label %take, label %new
take:
  api void Py_IncRef(ptr %kept)
  ret ptr %kept
new:
  %pack = get ptr Runtime.PyTuple_Pack of %rt
  %own = call ptr (i64, ...) %pack(i64 2, ptr %self, ptr %grid)
  %failed = icmp eq ptr %own, null
  br i1 %failed, label %fail, label %make
make:
  %method = get ptr Runtime.launch_method of %rt
  %made = api ptr PyCFunction_NewEx(ptr %method, ptr %own, ptr null)
  api void Py_DecRef(ptr %own)
  %lost = icmp eq ptr %made, null
  br i1 %lost, label %fail, label %weigh
weigh:
  %light = call i1 @holds_nothing(ptr %rt, ptr %grid)
  br i1 %light, label %keep, label %done
keep:
  br i1 %collected, label %done, label %replace
replace:
  api void Py_IncRef(ptr %made)
  %r0 = api i32 PyList_SetItem(ptr %spare, i64 0, ptr %made)
  br label %done
done:
  ret ptr %made
fail:
  ret ptr null
}

; Whether an object has one owner, who alone can reach it then.
define internal i1 @is_held_once(ptr %object) nounwind alwaysinline {
  %count = get i32 Object.references of %object
  %one = icmp eq i32 %count, 1
  ret i1 %one
}

; Whether a grid may be kept after its launch: tuples of ints, and functions with neither closure nor
; defaults. Any other may hold tensors, or whatever else someone waits to see freed.
define internal i1 @holds_nothing(ptr %rt, ptr %grid) nounwind "frame-pointer"="all" {
entry:
  %type = get ptr Object.type of %grid
  %tuple_type = get ptr Runtime.tuple of %rt
  %function_type = get ptr Runtime.function of %rt
  %int_type = get ptr Runtime.int of %rt
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %measure, label %other
measure:
  %count = call i64 @size_of(ptr %grid)
  %few = icmp ule i64 %count, 3
  br i1 %few, label %test, label %no
test:
  %i = phi i64 [ 0, %measure ], [ %i2, %look ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %object = call ptr @item(ptr %grid, i64 %i)
  %object_type = get ptr Object.type of %object
  %is_int = icmp eq ptr %object_type, %int_type
  %i2 = add i64 %i, 1
  br i1 %is_int, label %test, label %no
other:
  %is_function = icmp eq ptr %type, %function_type
  br i1 %is_function, label %open, label %no
open:
  %closure = api ptr PyFunction_GetClosure(ptr %grid)
  %defaults = api ptr PyFunction_GetDefaults(ptr %grid)
  %named = api ptr PyFunction_GetKwDefaults(ptr %grid)
  %c0 = icmp eq ptr %closure, null
  %c1 = icmp eq ptr %defaults, null
  %c2 = icmp eq ptr %named, null
  %c01 = and i1 %c0, %c1
  %c = and i1 %c01, %c2
  br i1 %c, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; kernel[grid](*args, **kwargs): gives the compiled kernel that ran.
define ptr @launch(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %frame = alloca [$Frame.size x i8], align 16
  %bind_self = call ptr @item(ptr %self, i64 0)
  %grid = call ptr @item(ptr %self, i64 1)
  %state = call ptr @state_in(ptr %bind_self)
  %rt = get ptr State.runtime of %state
  %found = call i32 @prepare(ptr %rt, ptr %state, ptr %frame, ptr %args, i64 %nargs, ptr %kwnames)
  switch i32 %found, label %fail [ i32 $READY, label %run
                                   i32 $MISSED, label %miss
                                   i32 $UNUSUAL, label %slow ]
run:
  %ran = call ptr @start(ptr %rt, ptr %state, ptr %frame, ptr %grid,
                         ptr %args, i64 %nargs, ptr %kwnames)
  br label %done
miss:
  %compiler = get ptr State.fallback of %state
  %made = call ptr @miss(ptr %rt, ptr %state, ptr %frame, ptr %compiler, ptr %grid,
                         ptr %args, i64 %nargs, ptr %kwnames)
  br label %done
slow:
  %python = get ptr State.fallback of %state
  %left = call ptr @fall_back(ptr %rt, ptr %python, ptr %grid,
                              ptr %args, i64 %nargs, ptr %kwnames)
  br label %done
fail:
  br label %done
done:
  %result = phi ptr [ %ran, %run ], [ %made, %miss ], [ %left, %slow ], [ null, %fail ]
  call void @drop_held(ptr %rt, ptr %frame)
  ret ptr %result
}

; The State whose address is in the box, bytes, that is first in a tuple.
define internal ptr @state_in(ptr %tuple) nounwind alwaysinline {
  %box = call ptr @item(ptr %tuple, i64 0)
  %at = getelementptr i8, ptr %box, i64 $BYTES_DATA
  %state = load ptr, ptr %at
  ret ptr %state
}

; Reads a call. $READY: Frame.recent is the variant. $MISSED: Frame.stage is what has not met such a
; call, null for the table of variants. $UNUSUAL: Python has to launch. $FAILED: an exception is set.
define internal i32 @prepare(ptr %rt, ptr %state, ptr %frame, ptr %args, i64 %nargs,
                             ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  set i64 0 in Frame.held_count of %frame
  set ptr null in Frame.stage of %frame
  %matched = call i1 @match(ptr %rt, ptr %state, ptr %frame, ptr %args, i64 %nargs, ptr %kwnames)
  br i1 %matched, label %look, label %slow
look:
  %usual = call i1 @is_usual(ptr %rt, ptr %state)
  br i1 %usual, label %knob, label %slow
knob:
  %knobp = at Runtime.debug of %rt
  %debug = call i64 @knob(ptr %rt, ptr %knobp)
  %known = icmp sge i64 %debug, 0
  br i1 %known, label %read, label %slow
read:
  %count = get i64 State.count of %state
  set i64 0 in Frame.word_count of %frame
  set i64 0 in Frame.object_count of %frame
  set i64 0 in Frame.tensor_count of %frame
  set i64 0 in Frame.read_params of %frame
  set i64 0 in Frame.read_options of %frame
  set i64 %count in Frame.slot_count of %frame
  set i64 $NO_DEVICE in Frame.device of %frame
  call void @push(ptr %frame, i64 %debug)
  %staged = call i32 @run_stages(ptr %rt, ptr %state, ptr %frame)
  %on = icmp eq i32 %staged, $READY
  br i1 %on, label %defaults, label %stop
stop:
  ret i32 %staged
defaults:
  %full = call i1 @fill_defaults(ptr %state, ptr %frame, i64 %nargs)
  br i1 %full, label %rest, label %slow
rest:
  %readable = call i1 @read_new(ptr %rt, ptr %state, ptr %frame)
  br i1 %readable, label %where, label %slow
where:
  %placed = call i1 @place_launch(ptr %rt, ptr %frame)
  br i1 %placed, label %find, label %slow
find:
  %recent = call ptr @find(ptr %rt, ptr %state, ptr %frame)
  set ptr %recent in Frame.recent of %frame
  %absent = icmp eq ptr %recent, null
  br i1 %absent, label %miss, label %found
found:
  ; None stands for a variant that only Python can start.
  %none = get ptr Runtime.none of %rt
  %other = icmp eq ptr %recent, %none
  br i1 %other, label %slow, label %ready
ready:
  ret i32 $READY
miss:
  ret i32 $MISSED
slow:
  ret i32 $UNUSUAL
}

; -- the way through Python ---------------------------------------------------------------------

; The whole call, by Python: function(grid, *args, **kwargs), which is State.fallback to launch.
define internal ptr @fall_back(ptr %rt, ptr %function, ptr %grid, ptr %args, i64 %nargs,
                               ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %named = call i64 @size_of(ptr %kwnames)
  %given = add i64 %nargs, %named
  %count = add i64 %given, 1
  %all = alloca ptr, i64 %count
  store ptr %grid, ptr %all
  %rest = getelementptr i8, ptr %all, i64 8
  call void @copy(ptr %rest, ptr %args, i64 %given)
  %positional = add i64 %nargs, 1
  %result = api ptr PyObject_Vectorcall(ptr %function, ptr %all, i64 %positional, ptr %kwnames)
  ret ptr %result
}

; The call by `%python`, which compiles; then State.adopt(words, objects, compiled) for the next time, or
; Stage.note(words, objects, arguments by name).
define internal ptr @miss(ptr %rt, ptr %state, ptr %frame, ptr %python, ptr %grid, ptr %args,
                          i64 %nargs, ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %argv = alloca [3 x ptr]
  %second = getelementptr i8, ptr %argv, i64 8
  %third = getelementptr i8, ptr %argv, i64 16
  %result = call ptr @fall_back(ptr %rt, ptr %python, ptr %grid,
                                ptr %args, i64 %nargs, ptr %kwnames)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %fail, label %pack
pack:
  %words = call ptr @key_of(ptr %rt, ptr %frame)
  %no_words = icmp eq ptr %words, null
  br i1 %no_words, label %drop, label %hold
hold:
  %objects = call ptr @objects_of(ptr %rt, ptr %frame)
  %no_objects = icmp eq ptr %objects, null
  br i1 %no_objects, label %drop_words, label %choose
choose:
  %stage = get ptr Frame.stage of %frame
  %is_variant = icmp eq ptr %stage, null
  br i1 %is_variant, label %variant, label %staged
variant:
  %adopt = get ptr State.adopt of %state
  api void Py_IncRef(ptr %result)
  br label %tell
staged:
  %note = get ptr Stage.note of %stage
  %named = call ptr @given_by_name(ptr %rt, ptr %state, ptr %frame)
  %no_named = icmp eq ptr %named, null
  br i1 %no_named, label %drop_both, label %tell
tell:
  %function = phi ptr [ %adopt, %variant ], [ %note, %staged ]
  %last = phi ptr [ %result, %variant ], [ %named, %staged ]
  store ptr %words, ptr %argv
  store ptr %objects, ptr %second
  store ptr %last, ptr %third
  %told = api ptr PyObject_Vectorcall(ptr %function, ptr %argv, i64 3, ptr null)
  api void Py_DecRef(ptr %words)
  api void Py_DecRef(ptr %objects)
  api void Py_DecRef(ptr %last)
  %refused = icmp eq ptr %told, null
  br i1 %refused, label %drop, label %done
done:
  api void Py_DecRef(ptr %told)
  ret ptr %result
drop_both:
  api void Py_DecRef(ptr %objects)
  br label %drop_words
drop_words:
  api void Py_DecRef(ptr %words)
  br label %drop
drop:
  api void Py_DecRef(ptr %result)
  br label %fail
fail:
  ret ptr null
}

; The words of the call as bytes: the key of State.entries.
define internal ptr @key_of(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
  %count = get i64 Frame.word_count of %frame
  %size = shl i64 %count, 3
  %words = at Frame.words of %frame
  %key = api ptr PyBytes_FromStringAndSize(ptr %words, i64 %size)
  ret ptr %key
}

; The objects whose addresses are among the words, as a tuple that keeps them.
define internal ptr @objects_of(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 Frame.object_count of %frame
  %tuple = api ptr PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %done, label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %fill ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %fill, label %done
fill:
  %objects = at Frame.objects of %frame
  %at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %at
  api void Py_IncRef(ptr %object)
  %rc = api i32 PyTuple_SetItem(ptr %tuple, i64 %i, ptr %object)
  %i2 = add i64 %i, 1
  br label %test
done:
  ret ptr %tuple
}

; -- which argument is which --------------------------------------------------------------------

; Fills Frame.values, in the order of the parameters, and Frame.options. False: a wrong call, or one
; with keywords that mean something else than a parameter or an option.
define internal i1 @match(ptr %rt, ptr %state, ptr %frame, ptr %args, i64 %nargs,
                          ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.count of %state
  %positional = get i64 State.positional of %state
  %values = at Frame.values of %frame
  set i64 0 in Frame.option_count of %frame
  %fits = icmp ule i64 %nargs, %positional
  br i1 %fits, label %copy, label %wrong
copy:
  call void @copy(ptr %values, ptr %args, i64 %nargs)
  br label %clear
clear:
  %c = phi i64 [ %nargs, %copy ], [ %c2, %zero ]
  %open = icmp ult i64 %c, %count
  br i1 %open, label %zero, label %names
zero:
  %hole = getelementptr ptr, ptr %values, i64 %c
  store ptr null, ptr %hole
  %c2 = add i64 %c, 1
  br label %clear
names:
  %named = call i64 @size_of(ptr %kwnames)
  %rest = getelementptr ptr, ptr %args, i64 %nargs
  br label %keywords
keywords:
  %k = phi i64 [ 0, %names ], [ %k2, %placed ]
  %any = icmp ult i64 %k, %named
  br i1 %any, label %keyword, label %right
keyword:
  %name = call ptr @item(ptr %kwnames, i64 %k)
  %valuep = getelementptr ptr, ptr %rest, i64 %k
  %value = load ptr, ptr %valuep
  %ok = call i1 @place(ptr %rt, ptr %state, ptr %frame, ptr %name, ptr %value, i64 %nargs)
  br i1 %ok, label %placed, label %wrong
placed:
  %k2 = add i64 %k, 1
  br label %keywords
right:
  ret i1 true
wrong:
  ret i1 false
}

; Puts a keyword's value where it belongs. Names are nearly always the very objects of the
; parameters' names, so that comparing addresses finds them.
define internal i1 @place(ptr %rt, ptr %state, ptr %frame, ptr %name, ptr %value,
                          i64 %from) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.count of %state
  %values = at Frame.values of %frame
  br label %test
test:
  %i = phi i64 [ %from, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %ask
compare:
  %param = call ptr @param(ptr %state, i64 %i)
  %theirs = get ptr Param.keyword of %param
  %same = icmp eq ptr %theirs, %name
  br i1 %same, label %put, label %next
next:
  %i2 = add i64 %i, 1
  br label %test
ask:
  ; An equal name that is another object, a name given twice, or an option.
  %keywords = get ptr State.keywords of %state
  %found = api ptr PyDict_GetItemWithError(ptr %keywords, ptr %name)
  %is_option = icmp eq ptr %found, null
  br i1 %is_option, label %option, label %number
number:
  %j = api i64 PyLong_AsLongLong(ptr %found)
  %reserved = icmp slt i64 %j, 0
  br i1 %reserved, label %wrong, label %put
put:
  %at = phi i64 [ %i, %compare ], [ %j, %number ]
  %slot = getelementptr ptr, ptr %values, i64 %at
  %before = load ptr, ptr %slot
  %free = icmp eq ptr %before, null
  br i1 %free, label %store, label %wrong
store:
  store ptr %value, ptr %slot
  ret i1 true
option:
  %n = get i64 Frame.option_count of %frame
  %room = icmp ult i64 %n, $MAX_OPTIONS
  br i1 %room, label %note, label %wrong
note:
  %options = at Frame.options of %frame
  %twice = shl i64 %n, 1
  %first = getelementptr ptr, ptr %options, i64 %twice
  %second = getelementptr i8, ptr %first, i64 8
  store ptr %name, ptr %first
  store ptr %value, ptr %second
  %n2 = add i64 %n, 1
  set i64 %n2 in Frame.option_count of %frame
  ret i1 true
wrong:
  ret i1 false
}

; Gives the parameters from a number on that have no argument their defaults; false when one has none.
define internal i1 @fill_defaults(ptr %state, ptr %frame, i64 %from) nounwind {
entry:
  %count = get i64 State.count of %state
  %values = at Frame.values of %frame
  br label %test
test:
  %i = phi i64 [ %from, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %full
look:
  %slot = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %slot
  %open = icmp eq ptr %value, null
  br i1 %open, label %fill, label %next
fill:
  %param = call ptr @param(ptr %state, i64 %i)
  %default = get ptr Param.default of %param
  store ptr %default, ptr %slot
  %missing = icmp eq ptr %default, null
  br i1 %missing, label %wrong, label %next
next:
  %i2 = add i64 %i, 1
  br label %test
full:
  ret i1 true
wrong:
  ret i1 false
}

; -- what else a launch depends on --------------------------------------------------------------

; Whether nothing wants to see the launch, and what it depends on in other objects is as it was: the
; kernel's global variables, and attributes of the kernel and its wrappers.
define internal i1 @is_usual(ptr %rt, ptr %state) nounwind "frame-pointer"="all" {
entry:
  %hooks = get ptr State.hooks of %state
  %hooked = api i64 PyList_Size(ptr %hooks)
  %all_hooks = get ptr Runtime.launch_hooks of %rt
  %heard = api i64 PyList_Size(ptr %all_hooks)
  %wanted = or i64 %hooked, %heard
  %free = icmp eq i64 %wanted, 0
  br i1 %free, label %globals, label %no
globals:
  %count = get i64 State.global_count of %state
  %all = get ptr State.globals of %state
  br label %test
test:
  %i = phi i64 [ 0, %globals ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %offset = mul i64 %i, $Global.size
  %global = getelementptr i8, ptr %all, i64 %offset
  %same = call i1 @is_unchanged(ptr %rt, ptr %global)
  br i1 %same, label %next, label %no
next:
  %i2 = add i64 %i, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether an entry of a dictionary is still the same object, or still absent, and a constexpr still
; has the same value.
define internal i1 @is_unchanged(ptr %rt, ptr %global) nounwind "frame-pointer"="all" {
entry:
  %scope = get ptr Global.scope of %global
  %name = get ptr Global.name of %global
  %now = api ptr PyDict_GetItemWithError(ptr %scope, ptr %name)
  %before = get ptr Global.object of %global
  %same = icmp eq ptr %now, %before
  %inner = get ptr Global.value of %global
  %flat = icmp eq ptr %inner, null
  %differs = xor i1 %same, true
  %decided = or i1 %flat, %differs
  br i1 %decided, label %done, label %open
open:
  %attribute = get ptr Runtime.value_name of %rt
  %value = api ptr PyObject_GetAttr(ptr %now, ptr %attribute)
  %failed = icmp eq ptr %value, null
  br i1 %failed, label %clear, label %compare
compare:
  api void Py_DecRef(ptr %value)
  %equal = icmp eq ptr %value, %inner
  ret i1 %equal
clear:
  api void PyErr_Clear()
  ret i1 false
done:
  ret i1 %same
}

; The value of a setting that is a bool or an int of 0 or more, 0 by default: an override, else what
; Python makes of the environment; -1 when it is something else.
define internal i64 @knob(ptr %rt, ptr %knob) nounwind "frame-pointer"="all" {
entry:
  %overrides = get ptr Knob.overrides of %knob
  %name = get ptr Knob.name of %knob
  %size = api i64 PyDict_Size(ptr %overrides)
  %none = icmp eq i64 %size, 0
  br i1 %none, label %first, label %override
override:
  %set = api ptr PyDict_GetItemWithError(ptr %overrides, ptr %name)
  %unset = icmp eq ptr %set, null
  br i1 %unset, label %first, label %given
given:
  %value = call i64 @small(ptr %rt, ptr %set)
  ret i64 %value
first:
  %environ = get ptr Runtime.environ of %rt
  %key1 = get ptr Knob.variable of %knob
  %found1 = api ptr PyDict_GetItemWithError(ptr %environ, ptr %key1)
  %absent1 = icmp eq ptr %found1, null
  br i1 %absent1, label %second, label %ask
second:
  %key2 = get ptr Knob.other_variable of %knob
  %found2 = api ptr PyDict_GetItemWithError(ptr %environ, ptr %key2)
  %absent2 = icmp eq ptr %found2, null
  br i1 %absent2, label %default, label %ask
default:
  ret i64 0
ask:
  %group = get ptr Knob.group of %knob
  %asked = api ptr PyObject_GetAttr(ptr %group, ptr %name)
  %failed = icmp eq ptr %asked, null
  br i1 %failed, label %clear, label %convert
convert:
  %told = call i64 @small(ptr %rt, ptr %asked)
  api void Py_DecRef(ptr %asked)
  ret i64 %told
clear:
  api void PyErr_Clear()
  ret i64 -1
}

; A bool or an int of 0 or more; -1 for anything else.
define internal i64 @small(ptr %rt, ptr %object) nounwind "frame-pointer"="all" {
entry:
  %type = get ptr Object.type of %object
  %int = get ptr Runtime.int of %rt
  %bool = get ptr Runtime.bool of %rt
  %is_int = icmp eq ptr %type, %int
  %is_bool = icmp eq ptr %type, %bool
  %either = or i1 %is_int, %is_bool
  br i1 %either, label %convert, label %no
convert:
  %value = api i64 PyLong_AsLongLong(ptr %object)
  %good = icmp sge i64 %value, 0
  br i1 %good, label %yes, label %clear
yes:
  ret i64 %value
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i64 -1
}

; -- the variant --------------------------------------------------------------------------------

; The Recent whose words are the call's; None for a variant that Python starts; null for a new one.
define internal ptr @find(ptr %rt, ptr %state, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 Frame.word_count of %frame
  %words = at Frame.words of %frame
  %recents = at State.recents of %state
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %offset = mul i64 %i, $Recent.size
  %recent = getelementptr i8, ptr %recents, i64 %offset
  %theirs = get i64 Recent.count of %recent
  %as_many = icmp eq i64 %theirs, %count
  br i1 %as_many, label %compare, label %next
compare:
  %other = get ptr Recent.words of %recent
  %same = call i1 @equal(ptr %other, ptr %words, i64 %count)
  br i1 %same, label %hit, label %next
next:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, $RECENTS
  br i1 %more, label %look, label %table
hit:
  ret ptr %recent
table:
  %found = call ptr @find_in_table(ptr %rt, ptr %state, ptr %frame)
  ret ptr %found
}

; The same by State.entries, whose values are (words, record, …) or None. What it finds takes the
; place of the oldest Recent, which borrows from the table.
define internal ptr @find_in_table(ptr %rt, ptr %state,
                                   ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %key = call ptr @key_of(ptr %rt, ptr %frame)
  %failed = icmp eq ptr %key, null
  br i1 %failed, label %clear, label %search
search:
  %entries = get ptr State.entries of %state
  %found = api ptr PyDict_GetItemWithError(ptr %entries, ptr %key)
  api void Py_DecRef(ptr %key)
  %none = get ptr Runtime.none of %rt
  %absent = icmp eq ptr %found, null
  %python = icmp eq ptr %found, %none
  %decided = or i1 %absent, %python
  br i1 %decided, label %done, label %keep
keep:
  %turn = get i64 State.turn of %state
  %turn2 = add i64 %turn, 1
  set i64 %turn2 in State.turn of %state
  %which = urem i64 %turn, $RECENTS
  %offset = mul i64 %which, $Recent.size
  %recents = at State.recents of %state
  %recent = getelementptr i8, ptr %recents, i64 %offset
  %words = call ptr @item(ptr %found, i64 0)
  %record = call ptr @item(ptr %found, i64 1)
  %words_at = getelementptr i8, ptr %words, i64 $BYTES_DATA
  %record_at = getelementptr i8, ptr %record, i64 $BYTES_DATA
  %count = get i64 Frame.word_count of %frame
  set ptr %found in Recent.entry of %recent
  set ptr %words_at in Recent.words of %recent
  set ptr %record_at in Recent.record of %recent
  set i64 %count in Recent.count of %recent
  ret ptr %recent
clear:
  api void PyErr_Clear()
  %python_runs_it = get ptr Runtime.none of %rt
  ret ptr %python_runs_it
done:
  ret ptr %found
}

; -- small things -------------------------------------------------------------------------------

define internal i1 @equal(ptr %a, ptr %b, i64 %count) nounwind alwaysinline {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %same ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %yes
compare:
  %pa = getelementptr i64, ptr %a, i64 %i
  %pb = getelementptr i64, ptr %b, i64 %i
  %va = load i64, ptr %pa
  %vb = load i64, ptr %pb
  %equal = icmp eq i64 %va, %vb
  br i1 %equal, label %same, label %no
same:
  %i2 = add i64 %i, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @copy(ptr %to, ptr %from, i64 %count) nounwind alwaysinline {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %step ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %done
step:
  %source = getelementptr ptr, ptr %from, i64 %i
  %target = getelementptr ptr, ptr %to, i64 %i
  %value = load ptr, ptr %source
  store ptr %value, ptr %target
  %i2 = add i64 %i, 1
  br label %test
done:
  ret void
}

; How many items a tuple has; none when it is null.
define internal i64 @size_of(ptr %tuple) nounwind alwaysinline {
entry:
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %zero, label %read
read:
  %size = get i64 Tuple.size of %tuple
  ret i64 %size
zero:
  ret i64 0
}

; An item of a tuple, borrowed.
define internal ptr @item(ptr %tuple, i64 %index) nounwind alwaysinline {
  %items = getelementptr i8, ptr %tuple, i64 $TUPLE_ITEMS
  %at = getelementptr ptr, ptr %items, i64 %index
  %object = load ptr, ptr %at
  ret ptr %object
}

define internal ptr @param(ptr %state, i64 %index) nounwind alwaysinline {
  %all = get ptr State.params of %state
  %offset = mul i64 %index, $Param.size
  %param = getelementptr i8, ptr %all, i64 %offset
  ret ptr %param
}

; One more word of the key.
define internal void @push(ptr %frame, i64 %word) nounwind alwaysinline {
  %count = get i64 Frame.word_count of %frame
  %words = at Frame.words of %frame
  %at = getelementptr i64, ptr %words, i64 %count
  store i64 %word, ptr %at
  %more = add i64 %count, 1
  set i64 %more in Frame.word_count of %frame
  ret void
}

; An object's address as a word of the key; the object will be kept with it.
define internal void @push_object(ptr %frame, ptr %object) nounwind alwaysinline {
  %word = ptrtoint ptr %object to i64
  call void @push(ptr %frame, i64 %word)
  %count = get i64 Frame.object_count of %frame
  %objects = at Frame.objects of %frame
  %at = getelementptr ptr, ptr %objects, i64 %count
  store ptr %object, ptr %at
  %more = add i64 %count, 1
  set i64 %more in Frame.object_count of %frame
  ret void
}
