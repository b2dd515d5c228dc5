; Tensors among the arguments: NumPy's by their fields, torch's by its C functions, others by the
; readers of runtime/tensors.py.

; A tensor of any library: $STARTED, $LEFT for what is none that is known, $FAILED for Python.
define internal i32 @read_memory(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                                 i64 %i) nounwind "frame-pointer"="all" {
entry:
  %type = get ptr Object.type of %value
  %ndarray = get ptr Runtime.ndarray of %rt
  %is_array = icmp eq ptr %type, %ndarray
  br i1 %is_array, label %read_array, label %tensor
read_array:
  %r0 = call i1 @read_array(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  br label %done
tensor:
  %torch = get ptr Runtime.torch_tensor of %rt
  %parameter = get ptr Runtime.torch_parameter of %rt
  %is_torch = icmp eq ptr %type, %torch
  %is_parameter = icmp eq ptr %type, %parameter
  %is_tensor = or i1 %is_torch, %is_parameter
  br i1 %is_tensor, label %read_tensor, label %other
read_tensor:
  %r1 = call i1 @read_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  br label %done
other:
  %none = get ptr Runtime.none of %rt
  %is_none = icmp eq ptr %value, %none
  br i1 %is_none, label %left, label %search
search:
  %readers = get ptr Runtime.readers of %rt
  %reader = api ptr PyDict_GetItemWithError(ptr %readers, ptr %type)
  %unknown = icmp eq ptr %reader, null
  br i1 %unknown, label %left, label %foreign
foreign:
  %r2 = call i1 @read_foreign(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i, ptr %reader)
  br label %done
done:
  %ok = phi i1 [ %r0, %read_array ], [ %r1, %read_tensor ], [ %r2, %foreign ]
  %result = select i1 %ok, i32 $STARTED, i32 $FAILED
  ret i32 %result
left:
  ret i32 $LEFT
}

; -- tensors ------------------------------------------------------------------------------------

; A tensor: $TENSOR with element type, alignment, `%marks`, which are $READ_ONLY if it must not be
; stored to and $UNKNOWN if nobody can say which memory it may share, and device; then
; a bit for each earlier tensor that it may overlap, as the classes of `alias_classes` follow from.
define internal i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                               i64 %device, i64 %marks, i64 %low, i64 %high) nounwind alwaysinline {
entry:
  %masked = and i64 %flags, $TAKES_TENSOR
  %takes = icmp ne i64 %masked, 0
  %earlier = get i64 Frame.tensor_count of %frame
  %room = icmp ult i64 %earlier, $MAX_PARAMS
  %may = and i1 %takes, %room
  br i1 %may, label %join, label %no
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
  %w2 = or i64 %w1, %marks
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
define internal i64 @overlaps(ptr %frame, i64 %device, i64 %low, i64 %high) nounwind alwaysinline {
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
define internal i64 @lookup(ptr %table, i64 %key) nounwind alwaysinline {
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
define internal i64 @element_of(ptr %rt, ptr %array) nounwind alwaysinline {
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

; A torch tensor, by the C functions of torch_tensors.py. One that has no memory, such as a sparse one,
; has them fail, which they tell by another number than 0.
define internal i1 @read_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                                i64 %i) nounwind alwaysinline "frame-pointer"="all" {
entry:
  %kind_out = alloca i32
  %type_out = alloca i32
  %data_out = alloca i64
  %offset = get i64 Runtime.torch_offset of %rt
  %tensor = getelementptr i8, ptr %value, i64 %offset
  %kind_of = get ptr Runtime.torch_get_device_type of %rt
  %type_of = get ptr Runtime.torch_get_dtype of %rt
  %data_of = get ptr Runtime.torch_get_data_ptr of %rt
  %s0 = call i32 %kind_of(ptr %tensor, ptr %kind_out)
  %s1 = call i32 %type_of(ptr %tensor, ptr %type_out)
  %s2 = call i32 %data_of(ptr %tensor, ptr %data_out)
  %s01 = or i32 %s0, %s1
  %s = or i32 %s01, %s2
  %told = icmp eq i32 %s, 0
  br i1 %told, label %range, label %no
range:
  %type32 = load i32, ptr %type_out
  %low_enough = icmp ult i32 %type32, $TORCH_DTYPES
  br i1 %low_enough, label %look, label %no
look:
  %type = zext i32 %type32 to i64
  %table = at Runtime.torch_elements of %rt
  %element_at = getelementptr i64, ptr %table, i64 %type
  %element = load i64, ptr %element_at
  %unknown = icmp eq i64 %element, 0
  br i1 %unknown, label %no, label %where
where:
  %address = load i64, ptr %data_out
  %kind = load i32, ptr %kind_out
  switch i32 %kind, label %no [ i32 $TORCH_CPU, label %cpu
                                i32 $TORCH_CUDA, label %cuda ]
cuda:
  %index_of = get ptr Runtime.torch_get_device_index of %rt
  %s3 = call i32 %index_of(ptr %tensor, ptr %kind_out)
  %index32 = load i32, ptr %kind_out
  %index = sext i32 %index32 to i64
  %asked = icmp eq i32 %s3, 0
  %placed = icmp sge i64 %index, 0
  %known = and i1 %asked, %placed
  br i1 %known, label %gpu, label %no
gpu:
  %device = add i64 %index, 1
  %on_gpu = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                                i64 %device, i64 0, i64 0, i64 0)
  ret i1 %on_gpu
cpu:
  %done = call i1 @put_cpu_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %tensor, i64 %i,
                                  i64 %address, i64 %element)
  ret i1 %done
no:
  ret i1 false
}

; On the CPU the storage of a torch tensor, not the view, is what it may share with others.
define internal i1 @put_cpu_tensor(ptr %rt, ptr %frame, i64 %flags, ptr %tensor, i64 %i,
                                   i64 %address,
                                   i64 %element) nounwind alwaysinline "frame-pointer"="all" {
entry:
  %size_out = alloca i64
  %offset_out = alloca i64
  %size_of = get ptr Runtime.torch_get_storage_size of %rt
  %offset_of = get ptr Runtime.torch_get_storage_offset of %rt
  %s0 = call i32 %size_of(ptr %tensor, ptr %size_out)
  %s1 = call i32 %offset_of(ptr %tensor, ptr %offset_out)
  %s = or i32 %s0, %s1
  %told = icmp eq i32 %s, 0
  br i1 %told, label %extent, label %no
extent:
  ; A tensor without elements has address 0, wherever its storage is.
  %size = load i64, ptr %size_out
  %null = icmp eq i64 %address, 0
  %some = icmp ne i64 %size, 0
  %hidden = and i1 %null, %some
  br i1 %hidden, label %no, label %put
put:
  %sizes = at Runtime.element_bytes of %rt
  %size_at = getelementptr i64, ptr %sizes, i64 %element
  %bytes = load i64, ptr %size_at
  %offset = load i64, ptr %offset_out
  %before = mul i64 %offset, %bytes
  %low = sub i64 %address, %before
  %high = add i64 %low, %size
  %done = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                              i64 $CPU, i64 0, i64 %low, i64 %high)
  ret i1 %done
no:
  ret i1 false
}

; -- other libraries' tensors ---------------------------------------------------------------------

; A tensor of a type that Python has met: by its reader, which gives (address, element, device, low,
; high, writable).
define internal i1 @read_foreign(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i,
                                 ptr %reader) nounwind "frame-pointer"="all" {
entry:
  %argument = alloca ptr
  store ptr %value, ptr %argument
  api void Py_IncRef(ptr %reader)
  %reading = api ptr PyObject_Vectorcall(ptr %reader, ptr %argument, i64 1, ptr null)
  api void Py_DecRef(ptr %reader)
  %failed = icmp eq ptr %reading, null
  br i1 %failed, label %clear, label %check
check:
  %type = get ptr Object.type of %reading
  %tuple_type = get ptr Runtime.tuple of %rt
  %is_tuple = icmp eq ptr %type, %tuple_type
  br i1 %is_tuple, label %measure, label %drop
measure:
  %size = call i64 @size_of(ptr %reading)
  %whole = icmp eq i64 %size, 6
  br i1 %whole, label %read, label %drop
read:
  %ok = call i1 @put_reading(ptr %rt, ptr %frame, i64 %flags, i64 %i, ptr %reading)
  br label %drop
drop:
  %result = phi i1 [ false, %check ], [ false, %measure ], [ %ok, %read ]
  api void Py_DecRef(ptr %reading)
  br i1 %result, label %yes, label %clear
yes:
  ret i1 true
clear:
  api void PyErr_Clear()
  ret i1 false
}

define internal i1 @put_reading(ptr %rt, ptr %frame, i64 %flags, i64 %i,
                                ptr %reading) nounwind "frame-pointer"="all" {
entry:
  %address_object = call ptr @item(ptr %reading, i64 0)
  %element_object = call ptr @item(ptr %reading, i64 1)
  %device_object = call ptr @item(ptr %reading, i64 2)
  %low_object = call ptr @item(ptr %reading, i64 3)
  %high_object = call ptr @item(ptr %reading, i64 4)
  %writable_object = call ptr @item(ptr %reading, i64 5)
  %address = api i64 PyLong_AsUnsignedLongLong(ptr %address_object)
  %f0 = api ptr PyErr_Occurred()
  %s0 = icmp eq ptr %f0, null
  br i1 %s0, label %extent, label %no
extent:
  %low = api i64 PyLong_AsLongLong(ptr %low_object)
  %f1 = api ptr PyErr_Occurred()
  %s1 = icmp eq ptr %f1, null
  br i1 %s1, label %end, label %no
end:
  %high = api i64 PyLong_AsLongLong(ptr %high_object)
  %f2 = api ptr PyErr_Occurred()
  %s2 = icmp eq ptr %f2, null
  br i1 %s2, label %names, label %no
names:
  %elements = get ptr Runtime.element_numbers of %rt
  %element = call i64 @number_in(ptr %rt, ptr %elements, ptr %element_object)
  %typed = icmp sge i64 %element, 0
  br i1 %typed, label %where, label %no
where:
  %devices = get ptr Runtime.device_numbers of %rt
  %device = call i64 @number_in(ptr %rt, ptr %devices, ptr %device_object)
  %here = icmp sge i64 %device, 0
  br i1 %here, label %put, label %no
put:
  %true = get ptr Runtime.true of %rt
  %writable = icmp eq ptr %writable_object, %true
  %unknown = icmp slt i64 %low, 0
  %m0 = select i1 %writable, i64 0, i64 $READ_ONLY
  %m1 = select i1 %unknown, i64 $UNKNOWN, i64 0
  %marks = or i64 %m0, %m1
  %from = select i1 %unknown, i64 0, i64 %low
  %done = call i1 @put_tensor(ptr %frame, i64 %flags, i64 %i, i64 %address, i64 %element,
                              i64 %device, i64 %marks, i64 %from, i64 %high)
  ret i1 %done
no:
  ret i1 false
}

; The number that a dictionary has for a string; -1 for none.
define internal i64 @number_in(ptr %rt, ptr %numbers,
                               ptr %name) nounwind "frame-pointer"="all" {
entry:
  %found = api ptr PyDict_GetItemWithError(ptr %numbers, ptr %name)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %no, label %convert
convert:
  %number = call i64 @small(ptr %rt, ptr %found)
  ret i64 %number
no:
  ret i64 -1
}
