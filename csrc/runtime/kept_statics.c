/* Keeps the static objects of the library that it is linked into: none of them is destroyed when the program ends.

   C++ registers the destructor of a static object with __cxa_atexit() when the object is made, and exit() calls them in
   the reverse order. So what a computation made lazily (ggml's tables of buffer types and of repacking, the kernels
   that this CPU can run) is destroyed before any function that was registered at the start can break the computation
   off and wait for it. The linker (--wrap) sends this library's registrations here, where they are dropped; the memory
   goes back with the process. What must happen at the end of the program calls __real___cxa_atexit(), as
   program_exit.cpp does. */

int __wrap___cxa_atexit(void (*destructor)(void*), void* object, void* library);

int __wrap___cxa_atexit(void (*destructor)(void*), void* object, void* library) {
    (void)destructor;
    (void)object;
    (void)library;
    return 0;
}
