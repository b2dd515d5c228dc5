; Arguments that have parts: tuples and tensor descriptors.

; More slots: the number of the first one; -1 when there are none left.
define internal i64 @new_slots(ptr %frame, i64 %wanted) nounwind {
entry:
  %first = get i64 Frame.slot_count of %frame
  %after = add i64 %first, %wanted
  %room = icmp ule i64 %after, $MAX_SLOTS
  br i1 %room, label %take, label %no
take:
  set i64 %after in Frame.slot_count of %frame
  ret i64 %first
no:
  ret i64 -1
}

; A tuple: its size, its class, and its items, each with a slot of its own.
define internal i1 @read_tuple(ptr %rt, ptr %frame, i64 %flags,
                               ptr %value) nounwind "frame-pointer"="all" {
entry:
  %masked = and i64 %flags, $TAKES_PARTS
  %takes = icmp ne i64 %masked, 0
  br i1 %takes, label %begin, label %no
begin:
  %type = get ptr Object.type of %value
  %size = call i64 @size_of(ptr %value)
  %size_part = shl i64 %size, 8
  %word = or i64 %size_part, $TUPLE
  call void @push(ptr %frame, i64 %word)
  call void @push_object(ptr %frame, ptr %type)
  %leaf = at Runtime.leaf of %rt
  br label %test
test:
  %i = phi i64 [ 0, %begin ], [ %i2, %next ]
  %more = icmp ult i64 %i, %size
  br i1 %more, label %take, label %yes
take:
  %slot = call i64 @new_slots(ptr %frame, i64 1)
  %full = icmp slt i64 %slot, 0
  br i1 %full, label %no, label %read
read:
  %object = call ptr @item(ptr %value, i64 %i)
  %ok = call i1 @read(ptr %rt, ptr %frame, ptr %leaf, ptr %object, i64 %slot)
  br i1 %ok, label %next, label %no
next:
  %i2 = add i64 %i, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

; A descriptor: its base as a tensor; then $DESCRIPTOR with rank, padding, and above them a bit for
; each extent that 16 divides; then the block's extents. Those of the array and its strides go into
; slots. What `check_descriptor` would refuse is left to it.
define internal i1 @read_descriptor(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                                    i64 %i) nounwind "frame-pointer"="all" {
entry:
  %blocks = alloca [$MAX_RANK x i64]
  %numbers = alloca [$MAX_RANK x i64]
  %masked = and i64 %flags, $TAKES_PARTS
  %takes = icmp ne i64 %masked, 0
  br i1 %takes, label %base, label %no
base:
  %element = call i64 @read_base(ptr %rt, ptr %frame, i64 %flags, ptr %value, i64 %i)
  %wrong = icmp slt i64 %element, 0
  br i1 %wrong, label %no, label %block
block:
  %block_name = get ptr Runtime.block_shape_name of %rt
  %rank = call i64 @read_ints(ptr %rt, ptr %value, ptr %block_name, ptr %blocks)
  %some = icmp sgt i64 %rank, 0
  br i1 %some, label %slots, label %no
slots:
  %twice = shl i64 %rank, 1
  %first = call i64 @new_slots(ptr %frame, i64 %twice)
  %full = icmp slt i64 %first, 0
  br i1 %full, label %no, label %shape
shape:
  %shape_name = get ptr Runtime.shape_name of %rt
  %extents = call i64 @read_ints(ptr %rt, ptr %value, ptr %shape_name, ptr %numbers)
  %as_many = icmp eq i64 %extents, %rank
  br i1 %as_many, label %put_shape, label %no
put_shape:
  %bits = call i64 @put_extents(ptr %frame, i64 %flags, ptr %numbers, i64 %rank, i64 %first)
  %bad = icmp slt i64 %bits, 0
  br i1 %bad, label %no, label %strides
strides:
  %strides_name = get ptr Runtime.strides_name of %rt
  %steps = call i64 @read_ints(ptr %rt, ptr %value, ptr %strides_name, ptr %numbers)
  %as_many_steps = icmp eq i64 %steps, %rank
  br i1 %as_many_steps, label %put_strides, label %no
put_strides:
  %second = add i64 %first, %rank
  %fit = call i1 @put_strides(ptr %rt, ptr %frame, i64 %element, ptr %numbers, i64 %rank,
                              i64 %second)
  br i1 %fit, label %padding, label %no
padding:
  %nan = call i64 @padding_of(ptr %rt, ptr %value)
  %odd = icmp slt i64 %nan, 0
  br i1 %odd, label %no, label %tell
tell:
  %rank_part = shl i64 %rank, 8
  %bits_part = shl i64 %bits, 32
  %w0 = or i64 %rank_part, $DESCRIPTOR
  %w1 = or i64 %w0, %nan
  %word = or i64 %w1, %bits_part
  call void @push(ptr %frame, i64 %word)
  br label %test
test:
  %k = phi i64 [ 0, %tell ], [ %k2, %next ]
  %more = icmp ult i64 %k, %rank
  br i1 %more, label %next, label %yes
next:
  %block_at = getelementptr i64, ptr %blocks, i64 %k
  %extent = load i64, ptr %block_at
  call void @push(ptr %frame, i64 %extent)
  %k2 = add i64 %k, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

; Reads a descriptor's base; its element type, or -1.
define internal i64 @read_base(ptr %rt, ptr %frame, i64 %flags, ptr %value,
                               i64 %i) nounwind "frame-pointer"="all" {
entry:
  %attribute = get ptr Runtime.base_name of %rt
  %base = api ptr PyObject_GetAttr(ptr %value, ptr %attribute)
  %failed = icmp eq ptr %base, null
  br i1 %failed, label %clear, label %read
read:
  %before = get i64 Frame.word_count of %frame
  %ok = call i32 @read_memory(ptr %rt, ptr %frame, i64 %flags, ptr %base, i64 %i)
  api void Py_DecRef(ptr %base)
  %good = icmp eq i32 %ok, $STARTED
  br i1 %good, label %check, label %no
check:
  %slots = at Frame.slots of %frame
  %slot = getelementptr i64, ptr %slots, i64 %i
  %address = load i64, ptr %slot
  %rest = and i64 %address, $PART_ALIGNMENT
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %done, label %no
done:
  %words = at Frame.words of %frame
  %word_at = getelementptr i64, ptr %words, i64 %before
  %word = load i64, ptr %word_at
  %shifted = lshr i64 %word, 8
  %element = and i64 %shifted, 255
  ret i64 %element
clear:
  api void PyErr_Clear()
  br label %no
no:
  ret i64 -1
}

; The ints of an attribute that is a sequence, up to $MAX_RANK; how many, or -1.
define internal i64 @read_ints(ptr %rt, ptr %value, ptr %name,
                               ptr %numbers) nounwind "frame-pointer"="all" {
entry:
  %overflow = alloca i32
  %int_type = get ptr Runtime.int of %rt
  %sequence = api ptr PyObject_GetAttr(ptr %value, ptr %name)
  %failed = icmp eq ptr %sequence, null
  br i1 %failed, label %clear, label %measure
measure:
  %count = api i64 PySequence_Size(ptr %sequence)
  %few = icmp ule i64 %count, $MAX_RANK
  br i1 %few, label %test, label %drop
test:
  %i = phi i64 [ 0, %measure ], [ %i2, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %take, label %done
take:
  %object = api ptr PySequence_GetItem(ptr %sequence, i64 %i)
  %gone = icmp eq ptr %object, null
  br i1 %gone, label %drop, label %look
look:
  %type = get ptr Object.type of %object
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %convert, label %drop_item
convert:
  %n = api i64 PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %next, label %drop_item
next:
  api void Py_DecRef(ptr %object)
  %at = getelementptr i64, ptr %numbers, i64 %i
  store i64 %n, ptr %at
  %i2 = add i64 %i, 1
  br label %test
done:
  api void Py_DecRef(ptr %sequence)
  ret i64 %count
drop_item:
  api void Py_DecRef(ptr %object)
  br label %drop
drop:
  api void Py_DecRef(ptr %sequence)
  br label %clear
clear:
  api void PyErr_Clear()
  ret i64 -1
}

; Extents into slots; a bit for each that 16 divides, or -1 when one is no int32 of 0 or more.
define internal i64 @put_extents(ptr %frame, i64 %flags, ptr %numbers, i64 %rank,
                                 i64 %slot) nounwind {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %bits = phi i64 [ 0, %entry ], [ %bits2, %next ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %check, label %done
check:
  %at = getelementptr i64, ptr %numbers, i64 %i
  %n = load i64, ptr %at
  %fits = icmp ult i64 %n, $EXTENT_LIMIT
  br i1 %fits, label %next, label %no
next:
  %to = add i64 %slot, %i
  call void @put_slot(ptr %frame, i64 %to, i64 %n)
  %aligned = call i64 @alignment(i64 %flags, i64 %n)
  %divides = icmp ne i64 %aligned, 0
  %one = zext i1 %divides to i64
  %bit = shl i64 %one, %i
  %bits2 = or i64 %bits, %bit
  %i2 = add i64 %i, 1
  br label %test
done:
  ret i64 %bits
no:
  ret i64 -1
}

; Strides into slots; false unless the last is 1 and the others are multiples of 16 bytes.
define internal i1 @put_strides(ptr %rt, ptr %frame, i64 %element, ptr %numbers, i64 %rank,
                                i64 %slot) nounwind {
entry:
  %sizes = at Runtime.element_bytes of %rt
  %size_at = getelementptr i64, ptr %sizes, i64 %element
  %size = load i64, ptr %size_at
  %last = sub i64 %rank, 1
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %more = icmp ult i64 %i, %rank
  br i1 %more, label %check, label %yes
check:
  %at = getelementptr i64, ptr %numbers, i64 %i
  %n = load i64, ptr %at
  %is_last = icmp eq i64 %i, %last
  %is_one = icmp eq i64 %n, 1
  %bytes = mul i64 %n, %size
  %rest = and i64 %bytes, $PART_ALIGNMENT
  %aligned = icmp eq i64 %rest, 0
  %fits = select i1 %is_last, i1 %is_one, i1 %aligned
  br i1 %fits, label %next, label %no
next:
  %to = add i64 %slot, %i
  call void @put_slot(ptr %frame, i64 %to, i64 %n)
  %i2 = add i64 %i, 1
  br label %test
yes:
  ret i1 true
no:
  ret i1 false
}

; 0 for padding by zeros, $NAN by NaN, -1 for what Python has to look at.
define internal i64 @padding_of(ptr %rt, ptr %value) nounwind "frame-pointer"="all" {
entry:
  %attribute = get ptr Runtime.padding_name of %rt
  %padding = api ptr PyObject_GetAttr(ptr %value, ptr %attribute)
  %failed = icmp eq ptr %padding, null
  br i1 %failed, label %clear, label %compare
compare:
  api void Py_DecRef(ptr %padding)
  %zero = get ptr Runtime.zero of %rt
  %nan = get ptr Runtime.nan of %rt
  %is_zero = icmp eq ptr %padding, %zero
  %is_nan = icmp eq ptr %padding, %nan
  %r0 = select i1 %is_nan, i64 $NAN, i64 -1
  %r1 = select i1 %is_zero, i64 0, i64 %r0
  ret i64 %r1
clear:
  api void PyErr_Clear()
  ret i64 -1
}
