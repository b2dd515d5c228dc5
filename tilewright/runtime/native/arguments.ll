; Arguments as words of the key and as slots: what runtime/specialize.py says of each, in numbers.
;
; The first word of an argument tells its kind in the lowest byte ($TENSOR and so on) and, above it,
; what its spec depends on; so equal words mean equal specs. False leaves the call to Python.

; Every parameter's argument, then the options.
define internal i1 @read_all(ptr %rt, ptr %state, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 State.count of %state
  %values = at Frame.values of %frame
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %read, label %end
read:
  %param = call ptr @param(ptr %state, i64 %i)
  %at = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %at
  %ok = call i1 @read(ptr %rt, ptr %frame, ptr %param, ptr %value, i64 %i)
  br i1 %ok, label %next, label %no
next:
  %i2 = add i64 %i, 1
  br label %test
end:
  ; Without tensors the driver that is active says where a launch runs.
  %device = get i64 Frame.device of %frame
  %nowhere = icmp eq i64 %device, $NO_DEVICE
  br i1 %nowhere, label %no, label %options
options:
  %good = call i1 @read_options(ptr %rt, ptr %frame)
  ret i1 %good
no:
  ret i1 false
}

define internal i1 @read_options(ptr %rt, ptr %frame) nounwind "frame-pointer"="all" {
entry:
  %count = get i64 Frame.option_count of %frame
  %options = at Frame.options of %frame
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
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
  ret i1 true
no:
  ret i1 false
}

; One argument, by its exact type.
define internal i1 @read(ptr %rt, ptr %frame, ptr %param, ptr %value,
                         i64 %i) nounwind "frame-pointer"="all" {
entry:
  %flags = get i64 Param.flags of %param
  %type = get ptr Object.type of %value
  %constexpr = and i64 %flags, $IS_CONSTEXPR
  %runtime = icmp eq i64 %constexpr, 0
  br i1 %runtime, label %array, label %constant
constant:
  %r0 = call i1 @read_constant(ptr %rt, ptr %frame, ptr %value)
  ret i1 %r0
array:
  %ndarray = get ptr Runtime.ndarray of %rt
  %is_array = icmp eq ptr %type, %ndarray
  br i1 %is_array, label %read_array, label %tensor
read_array:
  %r1 = call i1 @read_array(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r1
tensor:
  %torch = get ptr Runtime.torch_tensor of %rt
  %parameter = get ptr Runtime.torch_parameter of %rt
  %is_torch = icmp eq ptr %type, %torch
  %is_parameter = icmp eq ptr %type, %parameter
  %is_tensor = or i1 %is_torch, %is_parameter
  br i1 %is_tensor, label %read_tensor, label %int
read_tensor:
  %r2 = call i1 @read_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r2
int:
  %int_type = get ptr Runtime.int of %rt
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %read_int, label %float
read_int:
  %r3 = call i1 @read_int(ptr %rt, ptr %frame, ptr %param, ptr %value, i64 %i)
  ret i1 %r3
float:
  %float_type = get ptr Runtime.float of %rt
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %read_float, label %rest
read_float:
  %r4 = call i1 @read_float(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r4
rest:
  %r5 = call i1 @read_singleton(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  ret i1 %r5
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
                               i64 %i) nounwind "frame-pointer"="all" {
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
                             i64 %i) nounwind "frame-pointer"="all" {
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
define internal i64 @alignment(i64 %flags, i64 %number) nounwind {
  %masked = and i64 %flags, $BY_ALIGNMENT
  %counts = icmp ne i64 %masked, 0
  %rest = and i64 %number, 15
  %divides = icmp eq i64 %rest, 0
  %both = and i1 %counts, %divides
  %bit = select i1 %both, i64 $ALIGNED, i64 0
  ret i64 %bit
}

define internal void @put_slot(ptr %frame, i64 %i, i64 %bits) nounwind {
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
  br i1 %more, label %test, label %no
put:
  call void @push(ptr %frame, i64 $CONSTANT_OBJECT)
  call void @push_object(ptr %frame, ptr %value)
  ret i1 true
no:
  ret i1 false
}

; -- tensors ------------------------------------------------------------------------------------

; A tensor: $TENSOR with element type, alignment, whether it must not be stored to, and device; then
; a bit for each earlier tensor that it may overlap, as the classes of `alias_classes` follow from.
define internal i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                               i64 %device, i64 %read_only, i64 %low, i64 %high) nounwind {
entry:
  %masked = and i64 %flags, $TAKES_TENSOR
  %takes = icmp ne i64 %masked, 0
  br i1 %takes, label %join, label %no
join:
  %before = get i64 Frame.device of %frame
  %first = icmp eq i64 %before, $NO_DEVICE
  %same = icmp eq i64 %before, %device
  %together = or i1 %first, %same
  br i1 %together, label %put, label %no
put:
  set i64 %device in Frame.device of %frame
  call void @put_slot(ptr %frame, i64 %i, i64 %address)
  %aligned = call i64 @alignment(i64 %flags, i64 %address)
  %element_part = shl i64 %element, 8
  %device_part = shl i64 %device, 32
  %w0 = or i64 %element_part, $TENSOR
  %w1 = or i64 %w0, %aligned
  %w2 = or i64 %w1, %read_only
  %word = or i64 %w2, %device_part
  call void @push(ptr %frame, i64 %word)
  %mask = call i64 @overlaps(ptr %frame, i64 %device, i64 %low, i64 %high)
  call void @push(ptr %frame, i64 %mask)
  ret i1 true
no:
  ret i1 false
}

; A bit for each earlier tensor of the call that overlaps this one, which is noted for later ones.
; Off the CPU extents are not known, and all tensors are taken to overlap anyway.
define internal i64 @overlaps(ptr %frame, i64 %device, i64 %low, i64 %high) nounwind {
entry:
  %count = get i64 Frame.tensor_count of %frame
  %lows = at Frame.lows of %frame
  %highs = at Frame.highs of %frame
  %my_low = getelementptr i64, ptr %lows, i64 %count
  %my_high = getelementptr i64, ptr %highs, i64 %count
  store i64 %low, ptr %my_low
  store i64 %high, ptr %my_high
  %more = add i64 %count, 1
  set i64 %more in Frame.tensor_count of %frame
  %known = icmp eq i64 %device, $CPU
  br i1 %known, label %test, label %none
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %compare ]
  %mask = phi i64 [ 0, %entry ], [ %mask2, %compare ]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %compare, label %done
compare:
  %their_low_at = getelementptr i64, ptr %lows, i64 %i
  %their_high_at = getelementptr i64, ptr %highs, i64 %i
  %their_low = load i64, ptr %their_low_at
  %their_high = load i64, ptr %their_high_at
  %c0 = icmp ult i64 %low, %their_high
  %c1 = icmp ult i64 %their_low, %high
  %c = and i1 %c0, %c1
  %wide = zext i1 %c to i64
  %bit = shl i64 %wide, %i
  %mask2 = or i64 %mask, %bit
  %i2 = add i64 %i, 1
  br label %test
done:
  ret i64 %mask
none:
  ret i64 0
}

; The number kept for a key in a table of $BUCKETS pairs; 0 when there is none.
define internal i64 @lookup(ptr %table, i64 %key) nounwind {
entry:
  %spread = mul i64 %key, $HASH_FACTOR
  %start = lshr i64 %spread, $HASH_SHIFT
  br label %look
look:
  %i = phi i64 [ %start, %entry ], [ %i2, %next ]
  %offset = shl i64 %i, 4
  %pair = getelementptr i8, ptr %table, i64 %offset
  %theirs = load i64, ptr %pair
  %same = icmp eq i64 %theirs, %key
  br i1 %same, label %found, label %more
more:
  %empty = icmp eq i64 %theirs, 0
  br i1 %empty, label %absent, label %next
next:
  %after = add i64 %i, 1
  %i2 = urem i64 %after, $BUCKETS
  br label %look
found:
  %valuep = getelementptr i8, ptr %pair, i64 8
  %value = load i64, ptr %valuep
  ret i64 %value
absent:
  ret i64 0
}

; A NumPy array, by its ABI's fields. The memory that it may share with others is that of the array
; at the end of its chain of bases; a base that is no array is left to Python.
define internal i1 @read_array(ptr %rt, ptr %frame, i64 %flags, ptr %array,
                               i64 %i) nounwind "frame-pointer"="all" {
entry:
  %address = get i64 Array.data of %array
  %element = call i64 @element_of(ptr %rt, ptr %array)
  %unknown = icmp eq i64 %element, 0
  br i1 %unknown, label %no, label %own
own:
  %status = get i32 Array.flags of %array
  %owns_bit = and i32 %status, $OWNS_DATA
  %owns = icmp ne i32 %owns_bit, 0
  br i1 %owns, label %measure, label %walk
walk:
  %view = phi ptr [ %array, %own ], [ %base, %up ]
  %base = get ptr Array.base of %view
  %last = icmp eq ptr %base, null
  br i1 %last, label %gapless, label %up
up:
  %base_type = get ptr Object.type of %base
  %ndarray = get ptr Runtime.ndarray of %rt
  %is_array = icmp eq ptr %base_type, %ndarray
  br i1 %is_array, label %walk, label %no
gapless:
  %owner_status = get i32 Array.flags of %view
  %contiguous_bits = and i32 %owner_status, $CONTIGUOUS
  %contiguous = icmp ne i32 %contiguous_bits, 0
  br i1 %contiguous, label %measure, label %no
measure:
  %owner = phi ptr [ %array, %own ], [ %view, %gapless ]
  %low = get i64 Array.data of %owner
  %size = call i64 @bytes_of(ptr %rt, ptr %owner)
  %measured = icmp sge i64 %size, 0
  br i1 %measured, label %put, label %no
put:
  %high = add i64 %low, %size
  %writable_bit = and i32 %status, $WRITEABLE
  %protected = icmp eq i32 %writable_bit, 0
  %read_only = select i1 %protected, i64 $READ_ONLY, i64 0
  %type = and i64 %element, 255
  %done = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %type, i64 $CPU,
                              i64 %read_only, i64 %low, i64 %high)
  ret i1 %done
no:
  ret i1 false
}

; An array's element type and, above the lowest byte, the element's size; 0 for other types.
define internal i64 @element_of(ptr %rt, ptr %array) nounwind {
  %type = get i64 Array.descr of %array
  %table = at Runtime.elements of %rt
  %element = call i64 @lookup(ptr %table, i64 %type)
  ret i64 %element
}

; The bytes of an array's elements; -1 when their type is not known.
define internal i64 @bytes_of(ptr %rt, ptr %array) nounwind {
entry:
  %element = call i64 @element_of(ptr %rt, ptr %array)
  %unknown = icmp eq i64 %element, 0
  br i1 %unknown, label %no, label %known
known:
  %itemsize = lshr i64 %element, 8
  %rank32 = get i32 Array.nd of %array
  %rank = zext i32 %rank32 to i64
  %dims = get ptr Array.dims of %array
  br label %test
test:
  %i = phi i64 [ 0, %known ], [ %i2, %step ]
  %size = phi i64 [ %itemsize, %known ], [ %size2, %step ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %step, label %done
step:
  %dimp = getelementptr i64, ptr %dims, i64 %i
  %dim = load i64, ptr %dimp
  %size2 = mul i64 %size, %dim
  %i2 = add i64 %i, 1
  br label %test
done:
  ret i64 %size
no:
  ret i64 -1
}

; A torch tensor, by the C functions that DLPack has libraries offer for this.
define internal i1 @read_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                                i64 %i) nounwind "frame-pointer"="all" {
entry:
  %view = alloca [$DLTensor.size x i8], align 8
  %function = get ptr Runtime.torch_view of %rt
  %status = call i32 %function(ptr %value, ptr %view)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %type, label %clear
type:
  %type32 = get i32 DLTensor.dtype of %view
  %type64 = zext i32 %type32 to i64
  %key = or i64 %type64, $DLPACK_KEY
  %table = at Runtime.dlpack_elements of %rt
  %usual = call i64 @lookup(ptr %table, i64 %key)
  %ambiguous = icmp eq i64 %usual, $AMBIGUOUS
  br i1 %ambiguous, label %ask, label %typed
ask:
  %asked = call i64 @element_of_tensor(ptr %rt, ptr %value)
  br label %typed
typed:
  %element = phi i64 [ %usual, %type ], [ %asked, %ask ]
  %unknown = icmp eq i64 %element, 0
  br i1 %unknown, label %no, label %where
where:
  %data = get i64 DLTensor.data of %view
  %offset = get i64 DLTensor.byte_offset of %view
  %address = add i64 %data, %offset
  %kind = get i32 DLTensor.device_type of %view
  %index32 = get i32 DLTensor.device_id of %view
  %index = zext i32 %index32 to i64
  switch i32 %kind, label %no [ i32 $DL_CPU, label %cpu
                                i32 $DL_CUDA, label %cuda ]
cuda:
  %device = add i64 %index, 1
  %on_gpu = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                                i64 %device, i64 0, i64 0, i64 0)
  ret i1 %on_gpu
cpu:
  %done = call i1 @put_cpu_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i,
                                  i64 %address, i64 %element)
  ret i1 %done
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i1 false
}

; A torch tensor's element type by its dtype, for DLPack has one number for several; 0 for others.
define internal i64 @element_of_tensor(ptr %rt, ptr %tensor) nounwind "frame-pointer"="all" {
entry:
  %attribute = get ptr Runtime.dtype_name of %rt
  %dtype = api ptr PyObject_GetAttr(ptr %tensor, ptr %attribute)
  %failed = icmp eq ptr %dtype, null
  br i1 %failed, label %clear, label %search
search:
  %key = ptrtoint ptr %dtype to i64
  %table = at Runtime.elements of %rt
  %element = call i64 @lookup(ptr %table, i64 %key)
  api void Py_DecRef(ptr %dtype)
  ret i64 %element
clear:
  api void PyErr_Clear()
  ret i64 0
}

; On the CPU the storage of a torch tensor, not the view, is what it may share with others.
define internal i1 @put_cpu_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i,
                                   i64 %address, i64 %element) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  store ptr %value, ptr %argument
  %storage_of = get ptr Runtime.untyped_storage of %rt
  %storage = api ptr PyObject_Vectorcall(ptr %storage_of, ptr %argument, i64 1, ptr null)
  %failed = icmp eq ptr %storage, null
  br i1 %failed, label %clear, label %extent
extent:
  %address_of = get ptr Runtime.storage_data_ptr of %rt
  %bytes_of = get ptr Runtime.storage_nbytes of %rt
  %low = call i64 @number_of(ptr %rt, ptr %address_of, ptr %storage)
  %size = call i64 @number_of(ptr %rt, ptr %bytes_of, ptr %storage)
  api void Py_DecRef(ptr %storage)
  %c0 = icmp sge i64 %low, 0
  %c1 = icmp sge i64 %size, 0
  %known = and i1 %c0, %c1
  br i1 %known, label %put, label %no
put:
  %high = add i64 %low, %size
  %done = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                              i64 $CPU, i64 0, i64 %low, i64 %high)
  ret i1 %done
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i1 false
}

; What a method without arguments gives: an int of 0 or more; -1 for anything else.
define internal i64 @number_of(ptr %rt, ptr %method,
                               ptr %object) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  store ptr %object, ptr %argument
  %result = api ptr PyObject_Vectorcall(ptr %method, ptr %argument, i64 1, ptr null)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %clear, label %convert
convert:
  %number = call i64 @small(ptr %rt, ptr %result)
  api void Py_DecRef(ptr %result)
  ret i64 %number
clear:
  api void PyErr_Clear()
  ret i64 -1
}
