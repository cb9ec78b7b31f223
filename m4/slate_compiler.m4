# What slate needs of the compiler, and flags that it takes only where they are known.
# SPDX-License-Identifier: MIT

# SLATE_TRY_CFLAG(VARIABLE, FLAG)
# Appends FLAG to VARIABLE if the compiler takes it.
AC_DEFUN([SLATE_TRY_CFLAG], [
  AS_VAR_PUSHDEF([cached], [slate_cv_cflag_$2])
  AC_CACHE_CHECK([whether $CC takes $2], [cached], [
    slate_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $2"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
      [AS_VAR_SET([cached], [yes])], [AS_VAR_SET([cached], [no])])
    CFLAGS=$slate_save_CFLAGS
  ])
  AS_VAR_IF([cached], [yes], [AS_VAR_APPEND([$1], [" $2"])])
  AS_VAR_POPDEF([cached])
])

# SLATE_TRY_LDFLAG(VARIABLE, FLAG)
# Appends FLAG to VARIABLE if the linker takes it for a shared library.
AC_DEFUN([SLATE_TRY_LDFLAG], [
  AS_VAR_PUSHDEF([cached], [slate_cv_ldflag_$2])
  AC_CACHE_CHECK([whether the linker takes $2], [cached], [
    slate_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -shared -fPIC $2"
    AC_LINK_IFELSE([AC_LANG_SOURCE([int slate_defined = 1;])],
      [AS_VAR_SET([cached], [yes])], [AS_VAR_SET([cached], [no])])
    LDFLAGS=$slate_save_LDFLAGS
  ])
  AS_VAR_IF([cached], [yes], [AS_VAR_APPEND([$1], [" $2"])])
  AS_VAR_POPDEF([cached])
])

# SLATE_CHECK_TLS
# The way to a thread's arena is one thread-local pointer in the initial-exec model: without it each
# allocation would call __tls_get_addr, which may itself allocate.
AC_DEFUN([SLATE_CHECK_TLS], [
  AC_CACHE_CHECK([for thread-local variables in the initial-exec model], [slate_cv_tls], [
    AC_LINK_IFELSE(
      [AC_LANG_PROGRAM(
        [[static __thread void *pointer __attribute__((tls_model("initial-exec")));]],
        [[pointer = &pointer; return pointer == 0;]])],
      [slate_cv_tls=yes], [slate_cv_tls=no])
  ])
  AS_VAR_IF([slate_cv_tls], [yes], [],
    [AC_MSG_ERROR([slate needs a compiler with __thread and tls_model("initial-exec"); $CC has not both])])
])

# SLATE_CHECK_ATOMICS
# C11 atomics on pointers, without a library call: a foreign free is one compare-and-swap.
AC_DEFUN([SLATE_CHECK_ATOMICS], [
  AC_CACHE_CHECK([for lock-free C11 atomics], [slate_cv_atomics], [
    AC_LINK_IFELSE(
      [AC_LANG_PROGRAM(
        [[#include <stdatomic.h>
          #include <stdint.h>
          #if ATOMIC_POINTER_LOCK_FREE != 2 || ATOMIC_LLONG_LOCK_FREE != 2
          #error not lock-free
          #endif
          static _Atomic(void *) head;
          static _Atomic uint64_t count;]],
        [[void *old = atomic_load_explicit(&head, memory_order_relaxed);
          atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
          return !atomic_compare_exchange_weak_explicit(&head, &old, &count, memory_order_release,
                                                        memory_order_relaxed);]])],
      [slate_cv_atomics=yes], [slate_cv_atomics=no])
  ])
  AS_VAR_IF([slate_cv_atomics], [yes], [],
    [AC_MSG_ERROR([slate needs a compiler with lock-free C11 atomics; $CC has none])])
])

# SLATE_WARNINGS
# WARNING_CFLAGS: the warnings that slate is free of, and -Werror with --enable-werror. They are no
# part of CFLAGS, so that configure's own checks do not fail by them.
AC_DEFUN([SLATE_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [make warnings errors])],
    [], [enable_werror=no])
  WARNING_CFLAGS="-Wall -Wextra -Wpedantic"
  AS_VAR_IF([enable_werror], [no], [], [WARNING_CFLAGS="$WARNING_CFLAGS -Werror"])
  AC_SUBST([WARNING_CFLAGS])
])

# SLATE_SANITIZER
# SANITIZER_CFLAGS for --enable-sanitizer=address (with the checks for undefined behaviour) or
# thread.
AC_DEFUN([SLATE_SANITIZER], [
  AC_ARG_ENABLE([sanitizer],
    [AS_HELP_STRING([--enable-sanitizer=KIND],
      [build with a sanitizer: address (and undefined behaviour) or thread])],
    [], [enable_sanitizer=no])
  AS_CASE([$enable_sanitizer],
    [no], [SANITIZER_CFLAGS=],
    [address], [SANITIZER_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined"],
    [thread], [SANITIZER_CFLAGS="-fsanitize=thread"],
    [AC_MSG_ERROR([--enable-sanitizer takes address or thread, not "$enable_sanitizer"])])
  AS_IF([test -n "$SANITIZER_CFLAGS"], [
    SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-omit-frame-pointer"
    AC_MSG_CHECKING([whether $CC links with the $enable_sanitizer sanitizer])
    slate_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZER_CFLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([$CC cannot link with $SANITIZER_CFLAGS (Debian: libclang-rt-dev for clang)])])
    CFLAGS=$slate_save_CFLAGS
  ])
  AC_SUBST([SANITIZER_CFLAGS])
  AM_CONDITIONAL([SANITIZER], [test "$enable_sanitizer" != no])
])
