; A launch whose arguments have been read once and for all.

; What a launch of these arguments needs: (entry of the variant, slots as bytes, grid); None when Python
; has to launch it.
define ptr @freeze(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %frame = alloca [$Frame.size x i8], align 16
  %grid = call ptr @item(ptr %self, i64 1)
  %state = call ptr @state_in(ptr %self)
  %rt = get ptr State.runtime of %state
  set ptr null in Frame.grid_object of %frame
  br label %read
read:
  ; Each time one more wrapper has met such a call, then the kernel.
  %tries = phi i64 [ 0, %entry ], [ %again, %warm ]
  %found = call i32 @prepare(ptr %rt, ptr %state, ptr %frame, ptr %args, i64 %nargs, ptr %kwnames)
  switch i32 %found, label %fail [ i32 $READY, label %hold
                                   i32 $MISSED, label %miss
                                   i32 $UNUSUAL, label %slow ]
miss:
  %again = add i64 %tries, 1
  %stages = get i64 State.stage_count of %state
  %enough = icmp ugt i64 %tries, %stages
  br i1 %enough, label %slow, label %compile
compile:
  %python = get ptr State.warm of %state
  %compiled = call ptr @miss(ptr %rt, ptr %state, ptr %frame, ptr %python, ptr %grid,
                             ptr %args, i64 %nargs, ptr %kwnames)
  %wrong = icmp eq ptr %compiled, null
  br i1 %wrong, label %fail, label %warm
warm:
  api void Py_DecRef(ptr %compiled)
  call void @drop_held(ptr %rt, ptr %frame)
  br label %read
hold:
  %recent = get ptr Frame.recent of %frame
  %entry_object = get ptr Recent.entry of %recent
  api void Py_IncRef(ptr %entry_object)
  %kept = call i1 @hold(ptr %rt, ptr %frame, ptr %entry_object)
  br i1 %kept, label %size, label %slow
size:
  %any = call i32 @extents(ptr %rt, ptr %state, ptr %frame, ptr %grid)
  %failed = icmp eq i32 %any, $FAILED
  br i1 %failed, label %fail, label %pack
pack:
  %made = call ptr @frozen(ptr %rt, ptr %frame, ptr %entry_object)
  br label %done
slow:
  %none = get ptr Runtime.none of %rt
  api void Py_IncRef(ptr %none)
  br label %done
fail:
  br label %done
done:
  %result = phi ptr [ %made, %pack ], [ %none, %slow ], [ null, %fail ]
  call void @drop_grid(ptr %rt, ptr %frame)
  call void @drop_held(ptr %rt, ptr %frame)
  ret ptr %result
}

define internal ptr @frozen(ptr %rt, ptr %frame,
                            ptr %entry_object) nounwind "frame-pointer"="all" {
entry:
  %slots = at Frame.slots of %frame
  %count = get i64 Frame.slot_count of %frame
  %bytes = shl i64 %count, 3
  %tuple = api ptr PyTuple_New(i64 3)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %fail, label %fill
fill:
  api void Py_IncRef(ptr %entry_object)
  %r0 = api i32 PyTuple_SetItem(ptr %tuple, i64 0, ptr %entry_object)
  %words = api ptr PyBytes_FromStringAndSize(ptr %slots, i64 %bytes)
  %no_words = icmp eq ptr %words, null
  br i1 %no_words, label %drop, label %grid
grid:
  %r1 = api i32 PyTuple_SetItem(ptr %tuple, i64 1, ptr %words)
  %extents = call ptr @grid_tuple(ptr %rt, ptr %frame)
  %no_extents = icmp eq ptr %extents, null
  br i1 %no_extents, label %drop, label %done
done:
  %r2 = api i32 PyTuple_SetItem(ptr %tuple, i64 2, ptr %extents)
  ret ptr %tuple
drop:
  api void Py_DecRef(ptr %tuple)
  br label %fail
fail:
  ret ptr null
}

; What `kernel.bind` gives: `self` is (box, fallback, …) with the address of a structure Bound in the
; box; the fallback does the same by Python.
define ptr @launch_bound(ptr %self, ptr %args, i64 %nargs,
                         ptr %kwnames) nounwind "frame-pointer"="all" {
entry:
  %frame = alloca [$Frame.size x i8], align 16
  %box = call ptr @item(ptr %self, i64 0)
  %fallback = call ptr @item(ptr %self, i64 1)
  %boundp = getelementptr i8, ptr %box, i64 $BYTES_DATA
  %bound = load ptr, ptr %boundp
  %state = get ptr Bound.state of %bound
  %record = get ptr Bound.record of %bound
  %rt = get ptr State.runtime of %state
  %named = call i64 @size_of(ptr %kwnames)
  %given = or i64 %nargs, %named
  %alone = icmp eq i64 %given, 0
  br i1 %alone, label %look, label %slow
look:
  %usual = call i1 @is_usual(ptr %rt, ptr %state)
  br i1 %usual, label %knob, label %slow
knob:
  %knobp = at Runtime.debug of %rt
  %debug = call i64 @knob(ptr %rt, ptr %knobp)
  %before = get i64 Bound.debug of %bound
  %same = icmp eq i64 %debug, %before
  br i1 %same, label %fill, label %slow
fill:
  %x = get i64 Bound.grid_x of %bound
  %y = get i64 Bound.grid_y of %bound
  %z = get i64 Bound.grid_z of %bound
  %grid = at Frame.grid of %frame
  %yp = getelementptr i8, ptr %grid, i64 8
  %zp = getelementptr i8, ptr %grid, i64 16
  store i64 %x, ptr %grid
  store i64 %y, ptr %yp
  store i64 %z, ptr %zp
  %from = get ptr Bound.slots of %bound
  %count = get i64 Bound.slot_count of %bound
  %slots = at Frame.slots of %frame
  call void @copy(ptr %slots, ptr %from, i64 %count)
  %c0 = icmp eq i64 %x, 0
  %c1 = icmp eq i64 %y, 0
  %c2 = icmp eq i64 %z, 0
  %c01 = or i1 %c0, %c1
  %empty = or i1 %c01, %c2
  br i1 %empty, label %done, label %run
run:
  %ran = call i32 @start_on_device(ptr %rt, ptr %frame, ptr %record)
  switch i32 %ran, label %fail [ i32 $STARTED, label %done
                                 i32 $LEFT, label %slow ]
done:
  %kernel = get ptr Record.kernel of %record
  api void Py_IncRef(ptr %kernel)
  ret ptr %kernel
slow:
  %left = api ptr PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %left
fail:
  ret ptr null
}
