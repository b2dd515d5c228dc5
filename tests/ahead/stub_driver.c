/* A driver that starts nothing: it prints each call. The program that is linked with it says how
 * wide the kernel's parameters are, and may choose the current context and which call fails. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern const int widths[];
int context_now = 1, failing_load = 0;

typedef struct {
  unsigned int grid[3], block[3], shared;
  void *stream;
  const unsigned char *attributes;
  unsigned int count;
} configuration;

static int modules = 0;

int cuCtxGetCurrent(void **context) {
  *context = (void *)(intptr_t)context_now;
  return 0;
}

int cuModuleLoadData(void **module, const unsigned char *image) {
  if (failing_load) return failing_load;
  *module = (void *)(intptr_t)++modules;
  printf("load %d in %d: %02x%c%c%c\n", modules, context_now, image[0], image[1], image[2],
         image[3]);
  return 0;
}

int cuModuleUnload(void *module) {
  printf("unload %d\n", (int)(intptr_t)module);
  return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)((intptr_t)module * 100);
  printf("function %s of %d\n", name, (int)(intptr_t)module);
  return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  printf("attribute %d of %d is %d\n", attribute, (int)(intptr_t)function, value);
  return 0;
}

static void tell(void *function, const unsigned *shape, void *stream, void **parameters) {
  printf("launch %d on %u %u %u x %u %u %u, shared %u, stream %d:", (int)(intptr_t)function,
         shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
         (int)(intptr_t)stream);
  for (int i = 0; widths[i]; i++) {
    uint64_t value = 0;
    memcpy(&value, parameters[i], widths[i]);
    printf(" %llx", (unsigned long long)value);
  }
  printf("\n");
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};
  tell(function, shape, stream, parameters);
  return extra != NULL;
}

int cuLaunchKernelEx(const configuration *config, void *function, void **parameters, void **extra) {
  for (unsigned i = 0; i < config->count; i++) {
    int words[3];
    memcpy(&words[0], config->attributes + 72 * i, 4);
    memcpy(&words[1], config->attributes + 72 * i + 8, 4);
    printf("with %d = %d\n", words[0], words[1]);
  }
  tell(function, config->grid, config->stream, parameters);
  return extra != NULL;
}
