; What wrappers of a kernel add to a call: a configuration that tuning has found, computed arguments.
;
; State.stages has the wrappers, the outermost first. Each sees what has been given so far.

; $READY when every stage has added its own; else as @prepare.
define internal i32 @run_stages(ptr %rt, ptr %state, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.stage_count of %state
  %all = get ptr State.stages of %state
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %read, label %done
read:
  %offset = mul i64 %i, $Stage.size
  %stage = getelementptr i8, ptr %all, i64 %offset
  %ok = call i1 @read_new(ptr %rt, ptr %state, ptr %frame)
  br i1 %ok, label %run, label %slow
run:
  %kind = get i64 Stage.kind of %stage
  %is_tuned = icmp eq i64 %kind, $TUNE
  br i1 %is_tuned, label %tune, label %compute
tune:
  %r0 = call i32 @choose(ptr %rt, ptr %state, ptr %frame, ptr %stage)
  br label %check
compute:
  %r1 = call i32 @compute(ptr %rt, ptr %state, ptr %frame, ptr %stage)
  br label %check
check:
  %result = phi i32 [ %r0, %tune ], [ %r1, %compute ]
  %good = icmp eq i32 %result, $READY
  br i1 %good, label %next, label %stop
next:
  %i2 = add i64 %i, 1
  br label %test
stop:
  ret i32 %result
slow:
  ret i32 $UNUSUAL
done:
  ret i32 $READY
}

; The keywords of the configuration that such a call has, by Stage.chosen: (configuration, names,
; value, …) by the words so far; None where Python has to do it.
define internal i32 @choose(ptr %rt, ptr %state, ptr %frame,
                            ptr %stage) nounwind "frame-pointer"="all" {
entry:
  call void @push_configs(ptr %rt, ptr %frame, ptr %stage)
  %key = call ptr @key_of(ptr %rt, ptr %frame)
  %failed = icmp eq ptr %key, null
  br i1 %failed, label %clear, label %search
search:
  %chosen = get ptr Stage.chosen of %stage
  %found = api ptr PyDict_GetItemWithError(ptr %chosen, ptr %key)
  api void Py_DecRef(ptr %key)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %miss, label %known
known:
  %none = get ptr Runtime.none of %rt
  %python = icmp eq ptr %found, %none
  br i1 %python, label %slow, label %hold
hold:
  api void Py_IncRef(ptr %found)
  %held = call i1 @hold(ptr %rt, ptr %frame, ptr %found)
  br i1 %held, label %note, label %slow
note:
  %config = call ptr @item(ptr %found, i64 0)
  %names = call ptr @item(ptr %found, i64 1)
  %count = call i64 @size_of(ptr %names)
  %owner = get ptr Stage.owner of %stage
  %attribute = get ptr Runtime.best_config_name of %rt
  %rc = api i32 PyObject_SetAttr(ptr %owner, ptr %attribute, ptr %config)
  %set = icmp eq i32 %rc, 0
  br i1 %set, label %test, label %fail
test:
  %i = phi i64 [ 0, %note ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %put, label %done
put:
  %name = call ptr @item(ptr %names, i64 %i)
  %at = add i64 %i, 2
  %value = call ptr @item(ptr %found, i64 %at)
  %ok = call i1 @place(ptr %rt, ptr %state, ptr %frame, ptr %name, ptr %value, i64 0)
  br i1 %ok, label %next, label %slow
next:
  %i2 = add i64 %i, 1
  br label %test
done:
  ret i32 $READY
miss:
  set ptr %stage in Frame.stage of %frame
  ret i32 $MISSED
clear:
  api void PyErr_Clear()
  br label %slow
slow:
  ret i32 $UNUSUAL
fail:
  ret i32 $FAILED
}

; How many configurations there are, and which one if it is the only one: that is taken unmeasured.
define internal void @push_configs(ptr %rt, ptr %frame, ptr %stage) nounwind "frame-pointer"="all" {
entry:
  %configs = get ptr Stage.configs of %stage
  %count = api i64 PyList_Size(ptr %configs)
  %count_part = shl i64 %count, 8
  %word = or i64 %count_part, $CONFIGS
  call void @push(ptr %frame, i64 %word)
  %one = icmp eq i64 %count, 1
  br i1 %one, label %only, label %done
only:
  %config = api ptr PyList_GetItem(ptr %configs, i64 0)
  call void @push_object(ptr %frame, ptr %config)
  br label %done
done:
  ret void
}

; Arguments that functions of Stage.values compute from those given so far, in order.
define internal i32 @compute(ptr %rt, ptr %state, ptr %frame,
                             ptr %stage) nounwind "frame-pointer"="all" {
entry:
  %position = alloca i64
  %namep = alloca ptr
  %functionp = alloca ptr
  store i64 0, ptr %position
  %values = get ptr Stage.values of %stage
  br label %test
test:
  %more32 = api i32 PyDict_Next(ptr %values, ptr %position, ptr %namep, ptr %functionp)
  %more = icmp ne i32 %more32, 0
  br i1 %more, label %ask, label %done
ask:
  %name = load ptr, ptr %namep
  %function = load ptr, ptr %functionp
  api void Py_IncRef(ptr %name)
  %named = call i1 @hold(ptr %rt, ptr %frame, ptr %name)
  br i1 %named, label %call, label %slow
call:
  %value = call ptr @computed(ptr %rt, ptr %state, ptr %frame, ptr %function)
  %failed = icmp eq ptr %value, null
  br i1 %failed, label %fail, label %hold
hold:
  %held = call i1 @hold(ptr %rt, ptr %frame, ptr %value)
  br i1 %held, label %put, label %slow
put:
  %ok = call i1 @place(ptr %rt, ptr %state, ptr %frame, ptr %name, ptr %value, i64 0)
  br i1 %ok, label %test, label %slow
done:
  ret i32 $READY
slow:
  ret i32 $UNUSUAL
fail:
  ret i32 $FAILED
}

; What a function gives for the arguments by name; null with an exception set.
define internal ptr @computed(ptr %rt, ptr %state, ptr %frame,
                              ptr %function) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  api void Py_IncRef(ptr %function)
  %named = call ptr @given_by_name(ptr %rt, ptr %state, ptr %frame)
  %failed = icmp eq ptr %named, null
  br i1 %failed, label %fail, label %call
call:
  store ptr %named, ptr %argument
  %value = api ptr PyObject_Vectorcall(ptr %function, ptr %argument, i64 1, ptr null)
  api void Py_DecRef(ptr %named)
  api void Py_DecRef(ptr %function)
  ret ptr %value
fail:
  api void Py_DecRef(ptr %function)
  ret ptr null
}

; The arguments and options given so far, by name, as a new dictionary.
define internal ptr @given_by_name(ptr %rt, ptr %state,
                                   ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.count of %state
  %option_count = get i64 Frame.option_count of %frame
  %values = at Frame.values of %frame
  %options = at Frame.options of %frame
  %named = api ptr PyDict_New()
  %failed = icmp eq ptr %named, null
  br i1 %failed, label %done, label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %rest
look:
  %at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %at
  %absent = icmp eq ptr %value, null
  br i1 %absent, label %next, label %put
put:
  %param = call ptr @param(ptr %state, i64 %i)
  %name = get ptr Param.name of %param
  %r0 = api i32 PyDict_SetItem(ptr %named, ptr %name, ptr %value)
  br label %next
next:
  %i2 = add i64 %i, 1
  br label %test
rest:
  %k = phi i64 [ 0, %test ], [ %k2, %option ]
  %any = icmp ult i64 %k, %option_count
  br i1 %any, label %option, label %done
option:
  %twice = shl i64 %k, 1
  %first = getelementptr ptr, ptr %options, i64 %twice
  %second = getelementptr i8, ptr %first, i64 8
  %option_name = load ptr, ptr %first
  %option_value = load ptr, ptr %second
  %r1 = api i32 PyDict_SetItem(ptr %named, ptr %option_name, ptr %option_value)
  %k2 = add i64 %k, 1
  br label %rest
done:
  ret ptr %named
}

; Keeps an object, whose reference it takes over, until the call ends; false when it cannot, and
; then the object is given up.
define internal i1 @hold(ptr %rt, ptr %frame, ptr %object) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 Frame.held_count of %frame
  %room = icmp ult i64 %count, $MAX_HELD
  br i1 %room, label %keep, label %drop
keep:
  %held = at Frame.held of %frame
  %at = getelementptr ptr, ptr %held, i64 %count
  store ptr %object, ptr %at
  %more = add i64 %count, 1
  set i64 %more in Frame.held_count of %frame
  ret i1 true
drop:
  api void Py_DecRef(ptr %object)
  ret i1 false
}

define internal void @drop_held(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 Frame.held_count of %frame
  %held = at Frame.held of %frame
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %drop ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %drop, label %done
drop:
  %at = getelementptr ptr, ptr %held, i64 %i
  %object = load ptr, ptr %at
  api void Py_DecRef(ptr %object)
  %i2 = add i64 %i, 1
  br label %test
done:
  ret void
}
