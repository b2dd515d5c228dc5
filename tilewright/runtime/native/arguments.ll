; Arguments as words of the key and as slots: what runtime/specialize.py says of each, in numbers.
;
; The first word of an argument tells its kind in the lowest byte ($TENSOR and so on) and, above it,
; what its spec depends on; so equal words mean equal specs. False leaves the call to Python.

; Whatever has been given and not been read: arguments, then options.
;
; Where wrappers of a kernel add arguments, this is done several times. Words tell then which
; parameters it was that the words before them are of.
define internal i1 @read_new(ptr %rt, ptr %state, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.count of %state
  %values = at Frame.values of %frame
  %before = get i64 Frame.read_params of %frame
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %done = phi i64 [ %before, %entry ], [ %all, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %options
look:
  %at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %at
  %absent = icmp eq ptr %value, null
  %bit = shl i64 1, %i
  %masked = and i64 %done, %bit
  %known = icmp ne i64 %masked, 0
  %skip = or i1 %absent, %known
  br i1 %skip, label %next, label %read
read:
  %param = call ptr @param(ptr %state, i64 %i)
  %ok = call i1 @read(ptr %rt, ptr %frame, ptr %param, ptr %value, i64 %i)
  br i1 %ok, label %mark, label %no
mark:
  %done2 = or i64 %done, %bit
  %flags = get i64 Param.flags of %param
  %by_value = and i64 %flags, $BY_EVERY_VALUE
  %free = icmp eq i64 %by_value, 0
  br i1 %free, label %next, label %whole
whole:
  %told = call i1 @read_constant(ptr %rt, ptr %frame, ptr %value)
  br i1 %told, label %next, label %no
next:
  %all = phi i64 [ %done, %look ], [ %done2, %mark ], [ %done2, %whole ]
  %i2 = add i64 %i, 1
  br label %test
options:
  set i64 %done in Frame.read_params of %frame
  %good = call i1 @read_options(ptr %rt, ptr %frame)
  br i1 %good, label %wrapped, label %no
wrapped:
  %stages = get i64 State.stage_count of %state
  %plain = icmp eq i64 %stages, 0
  br i1 %plain, label %yes, label %tell
tell:
  call void @push(ptr %frame, i64 $PARAMS)
  call void @push(ptr %frame, i64 %done)
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Without tensors the driver that is active says where a launch runs; false when it cannot be told.
define internal i1 @place_launch(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %device = get i64 Frame.device of %frame
  %nowhere = icmp eq i64 %device, $NO_DEVICE
  br i1 %nowhere, label %ask, label %yes
ask:
  %function = get ptr Runtime.home of %rt
  %told = api ptr PyObject_Vectorcall(ptr %function, ptr null, i64 0, ptr null)
  %failed = icmp eq ptr %told, null
  br i1 %failed, label %clear, label %convert
convert:
  %home = call i64 @small(ptr %rt, ptr %told)
  api void Py_DecRef(ptr %told)
  %unknown = icmp slt i64 %home, 0
  br i1 %unknown, label %no, label %put
put:
  %part = shl i64 %home, 32
  %word = or i64 %part, $HOME
  call void @push(ptr %frame, i64 %word)
  br label %yes
yes:
  ret i1 true
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i1 false
}

; The options that have not been read.
define internal i1 @read_options(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %from = get i64 Frame.read_options of %frame
  %count = get i64 Frame.option_count of %frame
  %options = at Frame.options of %frame
  br label %test
test:
  %i = phi i64 [ %from, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %read, label %yes
read:
  %twice = shl i64 %i, 1
  %first = getelementptr ptr, ptr %options, i64 %twice
  %second = getelementptr i8, ptr %first, i64 8
  %name = load ptr, ptr %first
  %value = load ptr, ptr %second
  call void @push(ptr %frame, i64 $OPTION)
  call void @push_object(ptr %frame, ptr %name)
  %ok = call i1 @read_constant(ptr %rt, ptr %frame, ptr %value)
  br i1 %ok, label %next, label %no
next:
  %i2 = add i64 %i, 1
  br label %test
yes:
  set i64 %count in Frame.read_options of %frame
  ret i1 true
no:
  ret i1 false
}

; Whether there is room for the words of one more argument.
define internal i1 @has_room(ptr %frame) nounwind alwaysinline {
  %count = get i64 Frame.word_count of %frame
  %room = icmp ult i64 %count, $WORDS_LIMIT
  ret i1 %room
}

; One argument, by its exact type; `%i` is its slot.
define internal i1 @read(ptr %rt, ptr %frame, ptr %param, ptr %value,
                         i64 %i) nounwind alwaysinline "frame-pointer"="all" {
entry:
  %flags = get i64 Param.flags of %param
  %type = get ptr Object.type of %value
  %room = call i1 @has_room(ptr %frame)
  br i1 %room, label %begin, label %no
begin:
  %constexpr = and i64 %flags, $IS_CONSTEXPR
  %runtime = icmp eq i64 %constexpr, 0
  br i1 %runtime, label %int, label %constant
constant:
  %r0 = call i1 @read_constant(ptr %rt, ptr %frame, ptr %value)
  ret i1 %r0
int:
  %int_type = get ptr Runtime.int of %rt
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %read_int, label %float
read_int:
  %r1 = call i1 @read_int(ptr %rt, ptr %frame, ptr %param, ptr %value, i64 %i)
  ret i1 %r1
float:
  %float_type = get ptr Runtime.float of %rt
  %float64_type = get ptr Runtime.float64 of %rt
  %is_float = icmp eq ptr %type, %float_type
  %is_float64 = icmp eq ptr %type, %float64_type
  %is_number = or i1 %is_float, %is_float64
  br i1 %is_number, label %read_float, label %tensor
read_float:
  %r2 = call i1 @read_float(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r2
tensor:
  %r3 = call i32 @read_memory(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  switch i32 %r3, label %no [ i32 $STARTED, label %yes
                              i32 $LEFT, label %parts ]
parts:
  %traits = api i64 PyType_GetFlags(ptr %type)
  %tuple_bit = and i64 %traits, $IS_TUPLE
  %is_tuple = icmp ne i64 %tuple_bit, 0
  br i1 %is_tuple, label %read_tuple, label %descriptor
read_tuple:
  %r4 = call i1 @read_tuple(ptr %rt, ptr %frame, i64 %flags, ptr %value)
  ret i1 %r4
descriptor:
  %descriptors = get ptr Runtime.descriptors of %rt
  %listed = api ptr PyDict_GetItemWithError(ptr %descriptors, ptr %type)
  %is_other = icmp eq ptr %listed, null
  br i1 %is_other, label %rest, label %read_descriptor
read_descriptor:
  %r5 = call i1 @read_descriptor(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r5
rest:
  %r6 = call i1 @read_singleton(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r6
yes:
  ret i1 true
no:
  ret i1 false
}

; None and the two bools.
define internal i1 @read_singleton(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                                   i64 %i) nounwind "frame-pointer"="all" {
entry:
  %none = get ptr Runtime.none of %rt
  %true = get ptr Runtime.true of %rt
  %false = get ptr Runtime.false of %rt
  %is_none = icmp eq ptr %value, %none
  br i1 %is_none, label %nothing, label %bool
nothing:
  call void @push(ptr %frame, i64 $NONE)
  call void @put_slot(ptr %frame, i64 %i, i64 0)
  ret i1 true
bool:
  %is_true = icmp eq ptr %value, %true
  %is_false = icmp eq ptr %value, %false
  %is_bool = or i1 %is_true, %is_false
  %masked = and i64 %flags, $TAKES_BOOL
  %takes = icmp ne i64 %masked, 0
  %good = and i1 %is_bool, %takes
  br i1 %good, label %put, label %no
put:
  call void @push(ptr %frame, i64 $BOOL)
  %bit = zext i1 %is_true to i64
  call void @put_slot(ptr %frame, i64 %i, i64 %bit)
  ret i1 true
no:
  ret i1 false
}

define internal i1 @read_float(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                               i64 %i) nounwind alwaysinline "frame-pointer"="all" {
entry:
  %masked = and i64 %flags, $TAKES_FLOAT
  %takes = icmp ne i64 %masked, 0
  br i1 %takes, label %put, label %no
put:
  call void @push(ptr %frame, i64 $FLOAT)
  %double = api double PyFloat_AsDouble(ptr %value)
  %bits = bitcast double %double to i64
  call void @put_slot(ptr %frame, i64 %i, i64 %bits)
  ret i1 true
no:
  ret i1 false
}

; An int: $INT, the class of its type (0 for the value 1, then int32, int64, uint64) and whether 16
; divides it.
define internal i1 @read_int(ptr %rt, ptr %frame, ptr %param, ptr %value,
                             i64 %i) nounwind alwaysinline "frame-pointer"="all" {
entry:
  %overflow = alloca i32
  %flags = get i64 Param.flags of %param
  %masked = and i64 %flags, $TAKES_INT
  %takes = icmp ne i64 %masked, 0
  br i1 %takes, label %convert, label %no
convert:
  %n = api i64 PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %signed, label %wide
signed:
  %low = get i64 Param.low of %param
  %high = get i64 Param.high of %param
  %above = icmp sge i64 %n, %low
  %below = icmp sle i64 %n, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %classify, label %no
classify:
  %by_value = and i64 %flags, $BY_VALUE
  %valued = icmp ne i64 %by_value, 0
  %is_one = icmp eq i64 %n, 1
  %one = and i1 %valued, %is_one
  %short = trunc i64 %n to i32
  %again = sext i32 %short to i64
  %narrow = icmp eq i64 %again, %n
  %class0 = select i1 %narrow, i64 1, i64 2
  %class1 = select i1 %one, i64 0, i64 %class0
  br label %put
wide:
  ; Beyond int64: uint64, or too large for any type.
  %unsigned = and i64 %flags, $TAKES_UINT64
  %may = icmp ne i64 %unsigned, 0
  %positive = icmp sgt i32 %over, 0
  %try = and i1 %may, %positive
  br i1 %try, label %huge, label %no
huge:
  %u = api i64 PyLong_AsUnsignedLongLong(ptr %value)
  %failure = api ptr PyErr_Occurred()
  %good = icmp eq ptr %failure, null
  br i1 %good, label %put, label %clear
put:
  %bits = phi i64 [ %n, %classify ], [ %u, %huge ]
  %class = phi i64 [ %class1, %classify ], [ 3, %huge ]
  %aligned = call i64 @alignment(i64 %flags, i64 %bits)
  %high_part = shl i64 %class, 8
  %with_kind = or i64 %high_part, $INT
  %word = or i64 %with_kind, %aligned
  call void @push(ptr %frame, i64 %word)
  call void @put_slot(ptr %frame, i64 %i, i64 %bits)
  ret i1 true
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i1 false
}

; $ALIGNED when alignment counts for the parameter and 16 divides the number.
define internal i64 @alignment(i64 %flags, i64 %number) nounwind alwaysinline {
  %masked = and i64 %flags, $BY_ALIGNMENT
  %counts = icmp ne i64 %masked, 0
  %rest = and i64 %number, 15
  %divides = icmp eq i64 %rest, 0
  %both = and i1 %counts, %divides
  %bit = select i1 %both, i64 $ALIGNED, i64 0
  ret i64 %bit
}

define internal void @put_slot(ptr %frame, i64 %i, i64 %bits) nounwind alwaysinline {
  %slots = at Frame.slots of %frame
  %at = getelementptr i64, ptr %slots, i64 %i
  store i64 %bits, ptr %at
  ret void
}

; A compile-time value, in two words: an int and a float by value; a bool, None, a string and an
; element type of the language, none of which changes, by their addresses.
define internal i1 @read_constant(ptr %rt, ptr %frame,
                                  ptr %value) nounwind "frame-pointer"="all" {
entry:
  %overflow = alloca i32
  %type = get ptr Object.type of %value
  %room = call i1 @has_room(ptr %frame)
  br i1 %room, label %begin, label %no
begin:
  %int_type = get ptr Runtime.int of %rt
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %int, label %float
int:
  %n = api i64 PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %put_int, label %no
put_int:
  call void @push(ptr %frame, i64 $CONSTANT_INT)
  call void @push(ptr %frame, i64 %n)
  ret i1 true
float:
  %float_type = get ptr Runtime.float of %rt
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %put_float, label %other
put_float:
  %double = api double PyFloat_AsDouble(ptr %value)
  %bits = bitcast double %double to i64
  call void @push(ptr %frame, i64 $CONSTANT_FLOAT)
  call void @push(ptr %frame, i64 %bits)
  ret i1 true
other:
  %none = get ptr Runtime.none of %rt
  %is_none = icmp eq ptr %value, %none
  br i1 %is_none, label %put, label %types
types:
  %types_at = at Runtime.constant_types of %rt
  br label %test
test:
  %i = phi i64 [ 0, %types ], [ %i2, %next ]
  %known_at = getelementptr ptr, ptr %types_at, i64 %i
  %known = load ptr, ptr %known_at
  %same = icmp eq ptr %type, %known
  br i1 %same, label %put, label %next
next:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, $CONSTANT_TYPES
  br i1 %more, label %test, label %tuple
put:
  call void @push(ptr %frame, i64 $CONSTANT_OBJECT)
  call void @push_object(ptr %frame, ptr %value)
  ret i1 true
tuple:
  %tuple_type = get ptr Runtime.tuple of %rt
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %items, label %box
items:
  %r0 = call i1 @read_constant_tuple(ptr %rt, ptr %frame, ptr %value)
  ret i1 %r0
box:
  %constexpr_type = get ptr Runtime.constexpr of %rt
  %is_box = icmp eq ptr %type, %constexpr_type
  br i1 %is_box, label %open, label %no
open:
  %r1 = call i1 @read_constexpr(ptr %rt, ptr %frame, ptr %value)
  ret i1 %r1
no:
  ret i1 false
}

define internal i1 @read_constant_tuple(ptr %rt, ptr %frame,
                                        ptr %value) nounwind "frame-pointer"="all" {
entry:
  %size = call i64 @size_of(ptr %value)
  %size_part = shl i64 %size, 8
  %word = or i64 %size_part, $CONSTANT_TUPLE
  call void @push(ptr %frame, i64 %word)
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %read, label %yes
read:
  %object = call ptr @item(ptr %value, i64 %i)
  %ok = call i1 @read_constant(ptr %rt, ptr %frame, ptr %object)
  br i1 %ok, label %next, label %no
next:
  %i2 = add i64 %i, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

; What is in a constexpr may be replaced meanwhile: only what needs not be kept is read.
define internal i1 @read_constexpr(ptr %rt, ptr %frame,
                                   ptr %value) nounwind "frame-pointer"="all" {
entry:
  %attribute = get ptr Runtime.value_name of %rt
  %inner = api ptr PyObject_GetAttr(ptr %value, ptr %attribute)
  %failed = icmp eq ptr %inner, null
  br i1 %failed, label %clear, label %check
check:
  %type = get ptr Object.type of %inner
  %int = get ptr Runtime.int of %rt
  %float = get ptr Runtime.float of %rt
  %bool = get ptr Runtime.bool of %rt
  %none = get ptr Runtime.none of %rt
  %c0 = icmp eq ptr %type, %int
  %c1 = icmp eq ptr %type, %float
  %c2 = icmp eq ptr %type, %bool
  %c3 = icmp eq ptr %inner, %none
  %c01 = or i1 %c0, %c1
  %c23 = or i1 %c2, %c3
  %c = or i1 %c01, %c23
  br i1 %c, label %read, label %drop
read:
  call void @push(ptr %frame, i64 $CONSTEXPR)
  %ok = call i1 @read_constant(ptr %rt, ptr %frame, ptr %inner)
  br label %drop
drop:
  %result = phi i1 [ false, %check ], [ %ok, %read ]
  api void Py_DecRef(ptr %inner)
  ret i1 %result
clear:
  api void PyErr_Clear()
  ret i1 false
}
