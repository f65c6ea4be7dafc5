# Builds a library that a test needs: t/NAME/NAME.c, or what a Makefile says that includes
# this.  Run by build_test_library() of t/lib/PaqTest.pm, in a copy of the folder; PAQ_SRC is
# src/ of the project.

ifndef MODULE_big
MODULES = $(NAME)
endif
PG_CPPFLAGS = -I$(PAQ_SRC)

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
# bitcode would be of no use, and needs another compiler
override with_llvm = no
include $(PGXS)
