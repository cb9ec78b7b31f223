# What slate needs of the host.
# SPDX-License-Identifier: MIT

# SLATE_CHECK_HOST
# Stops unless the host is 64-bit Linux: the reservation needs the address space, and the page
# policies are Linux's.
AC_DEFUN([SLATE_CHECK_HOST], [
  AC_REQUIRE([AC_CANONICAL_HOST])
  AC_MSG_CHECKING([whether the host is 64-bit Linux])
  AC_COMPILE_IFELSE(
    [AC_LANG_PROGRAM([], [[
#ifndef __linux__
#error not Linux
#endif
      _Static_assert(sizeof(void *) == 8, "64-bit");
    ]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([slate needs 64-bit Linux, and $host is not])])
])
