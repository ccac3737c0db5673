/*
 * A stand-in for libnvidia-ml.so.1: what HAMi's device plugin and monitor ask NVML on a machine without a GPU.
 * Written from NVIDIA's public NVML reference: names, return codes and the layout of structures (nvml.h, CUDA 12).
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c -lpthread
 *
 * NVML_STUB_FLEET names a text file, one record a line; without it nvmlInit answers "driver not loaded":
 *
 *   gpu UUID [bus=0000:07:00.0] [mem=MiB] [used=MiB] [util=PERCENT] [memutil=PERCENT] [mig=0|1] name=REST OF THE LINE
 *   mig PROFILE mem=MiB slices=N instances=N sm=N at=START:SIZE[,START:SIZE...]
 *   fail FUNCTION CODE
 *
 * Cards are numbered in file order. mem=0 is a card whose memory cannot be asked for (unified memory), one without mig=
 * has no MIG. PROFILE is a GPU instance profile of nvml.h, for all cards. The file is read again at every nvmlInit
 * when it was replaced. MIG instances live as long as the process.
 *
 * Lines appended to NVML_STUB_FLEET.events after an event set was created are its events:
 *
 *   xid GPU CODE
 *   error CODE          what the wait itself answers
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define MAX_GPUS 64
#define MAX_PROFILES 10
#define MAX_INSTANCES 8
#define MAX_FAILURES 16
#define EVENT_PAUSE_MS 50

/* nvmlReturn_t */
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, UNKNOWN = 999
};
enum { EVENT_XID = 8, NO_INSTANCE = 0xFFFFFFFF };

typedef unsigned int u32;
typedef unsigned long long u64;

/* Structures of nvml.h, in its order. */
typedef struct { char legacy[16]; u32 domain, bus, device, device_id, subsystem_id; char bus_id[32]; } PciInfo;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 start, size; } Placement;
typedef struct {
    u32 id, p2p, slices, instances, sm, copy, decoder, encoder, jpeg, ofa; u64 memory;
} GpuProfile;
typedef struct { u32 id, slices, instances, sm, copy, decoder, encoder, jpeg, ofa; } ComputeProfile;

typedef struct Gpu Gpu;
typedef struct Instance Instance;
struct Gpu {
    int present;
    char uuid[96], name[96], bus[32];
    u32 index, util, memutil;
    u64 memory, used;
    int mig;           /* -1: cannot, 0: off, 1: on */
    Instance *of;      /* for the handle of a MIG device: its instance */
};
/* A GPU instance with the one compute instance that fills it; 'compute' is that instance's handle. */
struct Instance {
    int present, computes;
    Gpu *gpu;
    u32 id, profile;
    Placement at;
    Gpu device;
};
typedef struct { Gpu *gpu; u32 id, profile; Placement at; } GpuInstanceInfo;
typedef struct { Gpu *gpu; Instance *instance; u32 id, profile; Placement at; } ComputeInstanceInfo;
typedef struct { Gpu *gpu; u64 type, data; u32 gpu_instance, compute_instance; } Event;
typedef struct { long read; Gpu *gpus[MAX_GPUS]; u32 count; } EventSet;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static struct stat seen;
static Gpu gpus[MAX_GPUS];
static u32 gpu_count;
static Instance instances[MAX_GPUS][MAX_INSTANCES];
static struct { GpuProfile info; Placement at[MAX_INSTANCES]; u32 places; } profiles[MAX_PROFILES];
static struct { char function[64]; int code; } failures[MAX_FAILURES];
static u32 failure_count;

/* ---- the fleet file ---- */

static int number(const char *word, const char *key, u64 *value)
{
    size_t length = strlen(key);
    if (strncmp(word, key, length) || word[length] != '=')
        return 0;
    *value = strtoull(word + length + 1, NULL, 10);
    return 1;
}

static void read_gpu(char *rest)
{
    char *word, *uuid = strtok_r(NULL, " ", &rest);
    if (!uuid || gpu_count == MAX_GPUS)
        return;
    Gpu *gpu = &gpus[gpu_count];
    memset(gpu, 0, sizeof *gpu);
    gpu->present = 1;
    gpu->index = gpu_count++;
    gpu->mig = -1;
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", uuid);
    snprintf(gpu->bus, sizeof gpu->bus, "0000:%02x:00.0", gpu->index + 1);
    while (rest && *rest) {
        u64 value;
        if (!strncmp(rest, "name=", 5)) {
            snprintf(gpu->name, sizeof gpu->name, "%s", rest + 5);
            return;
        }
        if (!(word = strtok_r(NULL, " ", &rest)))
            return;
        if (!strncmp(word, "bus=", 4))
            snprintf(gpu->bus, sizeof gpu->bus, "%s", word + 4);
        else if (number(word, "mem", &value))
            gpu->memory = value << 20;
        else if (number(word, "used", &value))
            gpu->used = value << 20;
        else if (number(word, "util", &value))
            gpu->util = (u32)value;
        else if (number(word, "memutil", &value))
            gpu->memutil = (u32)value;
        else if (number(word, "mig", &value))
            gpu->mig = (int)value;
    }
}

static void read_profile(char *rest)
{
    char *word = strtok_r(NULL, " ", &rest);
    u32 k = word ? (u32)atoi(word) : MAX_PROFILES;
    if (k >= MAX_PROFILES)
        return;
    GpuProfile info = { .id = k };
    profiles[k].places = 0;
    while ((word = strtok_r(NULL, " ", &rest))) {
        u64 value;
        if (number(word, "mem", &value))
            info.memory = value;
        else if (number(word, "slices", &value))
            info.slices = (u32)value;
        else if (number(word, "instances", &value))
            info.instances = (u32)value;
        else if (number(word, "sm", &value))
            info.sm = (u32)value;
        else if (!strncmp(word, "at=", 3)) {
            for (char *at = word + 3; at && profiles[k].places < MAX_INSTANCES; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
                Placement *place = &profiles[k].at[profiles[k].places];
                if (sscanf(at, "%u:%u", &place->start, &place->size) == 2)
                    profiles[k].places++;
            }
        }
    }
    profiles[k].info = info;
}

static void read_failure(char *rest)
{
    if (failure_count < MAX_FAILURES &&
        sscanf(rest ? rest : "", "%63s %d", failures[failure_count].function, &failures[failure_count].code) == 2)
        failure_count++;
}

/* Returns whether there is a fleet. */
static int read_fleet(void)
{
    const char *path = getenv("NVML_STUB_FLEET");
    struct stat now;
    FILE *file;
    char line[1024];

    if (!path || stat(path, &now) || !(file = fopen(path, "r")))
        return 0;
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) {
        fclose(file);
        return 1;
    }
    seen = now;
    gpu_count = failure_count = 0;
    for (int i = 0; i < MAX_GPUS; i++)
        gpus[i].present = 0;
    while (fgets(line, sizeof line, file)) {
        char *rest = NULL, *word;
        line[strcspn(line, "\r\n")] = 0;
        if (!(word = strtok_r(line, " ", &rest)))
            continue;
        if (!strcmp(word, "gpu"))
            read_gpu(rest);
        else if (!strcmp(word, "mig"))
            read_profile(rest);
        else if (!strcmp(word, "fail"))
            read_failure(rest);
    }
    fclose(file);
    return 1;
}

/* ---- what every function begins with ---- */

static int failure_of(const char *function)
{
    int code = SUCCESS;
    pthread_mutex_lock(&lock);
    for (u32 i = 0; i < failure_count; i++)
        if (!strcmp(failures[i].function, function))
            code = failures[i].code;
    pthread_mutex_unlock(&lock);
    return code;
}

static int is_mig(const Gpu *gpu) { return gpu->of != NULL; }

#define ENTER                                                                                                          \
    do {                                                                                                               \
        int code_ = failure_of(__func__);                                                                              \
        if (code_ || !initialised)                                                                                     \
            return code_ ? code_ : UNINITIALIZED;                                                                      \
    } while (0)
#define ENTER_GPU(gpu)                                                                                                 \
    do {                                                                                                               \
        ENTER;                                                                                                         \
        if (!(gpu))                                                                                                    \
            return INVALID_ARGUMENT;                                                                                   \
        if (!(gpu)->present)                                                                                           \
            return GPU_IS_LOST;                                                                                        \
    } while (0)
#define ENTER_PROFILE(gpu, profile)                                                                                    \
    do {                                                                                                               \
        ENTER_GPU(gpu);                                                                                                \
        if ((gpu)->mig < 0 || (profile) >= MAX_PROFILES || !profiles[profile].places)                                  \
            return NOT_SUPPORTED;                                                                                      \
    } while (0)
#define ENTER_INSTANCE(instance)                                                                                       \
    do {                                                                                                               \
        ENTER;                                                                                                         \
        if (!(instance) || !(instance)->present)                                                                       \
            return NOT_FOUND;                                                                                          \
    } while (0)

static int give(char *target, u32 length, const char *text)
{
    if (!target)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

/* ---- the library and its cards ---- */

API int nvmlInit_v2(void)
{
    int there, code;
    pthread_mutex_lock(&lock);
    there = read_fleet();
    pthread_mutex_unlock(&lock);
    if (!there)
        return DRIVER_NOT_LOADED;
    if ((code = failure_of(__func__)))
        return code;
    pthread_mutex_lock(&lock);
    initialised++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API int nvmlShutdown(void)
{
    ENTER;
    pthread_mutex_lock(&lock);
    initialised--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}

API int nvmlSystemGetDriverVersion(char *text, u32 length) { ENTER; return give(text, length, "550.163.01"); }
API int nvmlDeviceGetCount_v2(u32 *count) { ENTER; *count = gpu_count; return SUCCESS; }

API int nvmlDeviceGetHandleByIndex_v2(u32 index, Gpu **gpu)
{
    ENTER;
    if (index >= gpu_count)
        return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu)
{
    ENTER;
    for (u32 i = 0; i < gpu_count; i++) {
        if (!strcmp(gpus[i].uuid, uuid)) {
            *gpu = &gpus[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetName(Gpu *gpu, char *text, u32 length) { ENTER_GPU(gpu); return give(text, length, gpu->name); }
API int nvmlDeviceGetUUID(Gpu *gpu, char *text, u32 length) { ENTER_GPU(gpu); return give(text, length, gpu->uuid); }
API int nvmlDeviceGetIndex(Gpu *gpu, u32 *index) { ENTER_GPU(gpu); *index = gpu->index; return SUCCESS; }
API int nvmlDeviceGetMinorNumber(Gpu *gpu, u32 *minor) { ENTER_GPU(gpu); *minor = gpu->index; return SUCCESS; }

API int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor)
{
    ENTER_GPU(gpu);
    *major = 8;
    *minor = 0;
    return SUCCESS;
}

API int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info)
{
    ENTER_GPU(gpu);
    memset(info, 0, sizeof *info);
    sscanf(gpu->bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff,
             info->device & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus & 0xff,
             info->device & 0xff);
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory)
{
    ENTER_GPU(gpu);
    if (!gpu->memory)
        return NOT_SUPPORTED;
    *memory = (Memory){ gpu->memory, gpu->memory - gpu->used, gpu->used };
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *rates)
{
    ENTER_GPU(gpu);
    *rates = (Utilization){ gpu->util, gpu->memutil };
    return SUCCESS;
}

/* ---- MIG ---- */

API int nvmlDeviceGetMigMode(Gpu *gpu, u32 *current, u32 *pending)
{
    ENTER_GPU(gpu);
    if (gpu->mig < 0)
        return NOT_SUPPORTED;
    *current = *pending = (u32)gpu->mig;
    return SUCCESS;
}

API int nvmlDeviceSetMigMode(Gpu *gpu, u32 mode, int *status)
{
    ENTER_GPU(gpu);
    if (gpu->mig < 0)
        return NOT_SUPPORTED;
    gpu->mig = (int)mode;
    *status = SUCCESS;
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, u32 *count)
{
    ENTER_GPU(gpu);
    *count = gpu->mig < 0 ? 0 : MAX_INSTANCES;
    return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(Gpu *gpu, u32 *is) { ENTER_GPU(gpu); *is = (u32)is_mig(gpu); return SUCCESS; }

API int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, u32 index, Gpu **device)
{
    ENTER_GPU(gpu);
    if (is_mig(gpu) || index >= MAX_INSTANCES || !instances[gpu->index][index].computes)
        return NOT_FOUND;
    *device = &instances[gpu->index][index].device;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(Gpu *gpu, u32 *id)
{
    ENTER_GPU(gpu);
    if (!is_mig(gpu))
        return NOT_SUPPORTED;
    *id = gpu->of->id;
    return SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(Gpu *gpu, u32 *id)
{
    ENTER_GPU(gpu);
    if (!is_mig(gpu))
        return NOT_SUPPORTED;
    *id = 0;
    return SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Gpu *gpu, Gpu **parent)
{
    ENTER_GPU(gpu);
    if (!is_mig(gpu))
        return INVALID_ARGUMENT;
    *parent = gpu->of->gpu;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceProfileInfo(Gpu *gpu, u32 profile, GpuProfile *info)
{
    ENTER_PROFILE(gpu, profile);
    *info = profiles[profile].info;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Gpu *gpu, u32 profile, Placement *places, u32 *count)
{
    ENTER_PROFILE(gpu, profile);
    u32 room = *count;
    *count = profiles[profile].places;
    if (!places)
        return SUCCESS;
    if (room < *count)
        return INSUFFICIENT_SIZE;
    memcpy(places, profiles[profile].at, *count * sizeof *places);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstances(Gpu *gpu, u32 profile, Instance **found, u32 *count)
{
    ENTER_PROFILE(gpu, profile);
    *count = 0;
    for (int i = 0; i < MAX_INSTANCES; i++)
        if (instances[gpu->index][i].present && instances[gpu->index][i].profile == profile)
            found[(*count)++] = &instances[gpu->index][i];
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceById(Gpu *gpu, u32 id, Instance **found)
{
    ENTER_GPU(gpu);
    for (int i = 0; i < MAX_INSTANCES; i++) {
        if (instances[gpu->index][i].present && instances[gpu->index][i].id == id) {
            *found = &instances[gpu->index][i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(Gpu *gpu, u32 profile, const Placement *at, Instance **made)
{
    ENTER_PROFILE(gpu, profile);
    int possible = 0, free = -1;
    if (gpu->mig != 1)
        return NOT_SUPPORTED;
    for (u32 i = 0; i < profiles[profile].places; i++)
        possible |= !memcmp(&profiles[profile].at[i], at, sizeof *at);
    if (!possible)
        return INVALID_ARGUMENT;
    for (int i = MAX_INSTANCES - 1; i >= 0; i--) {
        const Instance *other = &instances[gpu->index][i];
        if (!other->present)
            free = i;
        else if (at->start < other->at.start + other->at.size && other->at.start < at->start + at->size)
            return INSUFFICIENT_RESOURCES;
    }
    if (free < 0)
        return INSUFFICIENT_RESOURCES;
    *made = &instances[gpu->index][free];
    **made = (Instance){ .present = 1, .gpu = gpu, .id = (u32)free + 1, .profile = profile, .at = *at };
    return SUCCESS;
}

API int nvmlGpuInstanceGetInfo(Instance *instance, GpuInstanceInfo *info)
{
    ENTER_INSTANCE(instance);
    *info = (GpuInstanceInfo){ instance->gpu, instance->id, instance->profile, instance->at };
    return SUCCESS;
}

API int nvmlGpuInstanceDestroy(Instance *instance)
{
    ENTER_INSTANCE(instance);
    if (instance->computes)
        return IN_USE;
    instance->present = 0;
    return SUCCESS;
}

/* Only the compute instance that fills its GPU instance is offered; the instance is its own handle. */
API int nvmlGpuInstanceGetComputeInstanceProfileInfo(Instance *instance, u32 profile, u32 engine, ComputeProfile *info)
{
    ENTER_INSTANCE(instance);
    if (engine || profile != instance->profile)
        return NOT_SUPPORTED;
    const GpuProfile *whole = &profiles[profile].info;
    *info = (ComputeProfile){ .id = profile, .slices = whole->slices, .instances = 1, .sm = whole->sm };
    return SUCCESS;
}

API int nvmlGpuInstanceCreateComputeInstance(Instance *instance, u32 profile, Instance **made)
{
    static u32 serial;
    ENTER_INSTANCE(instance);
    if (profile != instance->profile || instance->computes)
        return INVALID_ARGUMENT;
    Gpu *device = &instance->device;
    *device = *instance->gpu;
    device->memory = profiles[profile].info.memory << 20;
    device->mig = -1;
    device->of = instance;
    snprintf(device->uuid, sizeof device->uuid, "MIG-%08x-%04x-4000-8000-%012x", instance->gpu->index, instance->id, ++serial);
    instance->computes = 1;
    *made = instance;
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstances(Instance *instance, u32 profile, Instance **found, u32 *count)
{
    ENTER_INSTANCE(instance);
    *count = 0;
    if (instance->computes && profile == instance->profile)
        found[(*count)++] = instance;
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceById(Instance *instance, u32 id, Instance **found)
{
    ENTER_INSTANCE(instance);
    if (!instance->computes || id)
        return NOT_FOUND;
    *found = instance;
    return SUCCESS;
}

API int nvmlComputeInstanceGetInfo_v2(Instance *compute, ComputeInstanceInfo *info)
{
    ENTER_INSTANCE(compute);
    *info = (ComputeInstanceInfo){ compute->gpu, compute, 0, compute->profile, { 0, compute->at.size } };
    return SUCCESS;
}

API int nvmlComputeInstanceDestroy(Instance *compute)
{
    ENTER_INSTANCE(compute);
    compute->computes = 0;
    compute->device.present = 0;
    return SUCCESS;
}

/* ---- events ---- */

static FILE *events(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.events", getenv("NVML_STUB_FLEET"));
    return fopen(path, "r");
}

API int nvmlEventSetCreate(EventSet **made)
{
    ENTER;
    FILE *file = events();
    EventSet *set = calloc(1, sizeof *set);
    if (file) {
        fseek(file, 0, SEEK_END);
        set->read = ftell(file);
        fclose(file);
    }
    *made = set;
    return SUCCESS;
}

API int nvmlEventSetFree(EventSet *set)
{
    free(set);
    return SUCCESS;
}

API int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, u64 *types) { ENTER_GPU(gpu); *types = EVENT_XID; return SUCCESS; }

API int nvmlDeviceRegisterEvents(Gpu *gpu, u64 types, EventSet *set)
{
    ENTER_GPU(gpu);
    if (!(types & EVENT_XID) || set->count == MAX_GPUS)
        return INVALID_ARGUMENT;
    set->gpus[set->count++] = gpu;
    return SUCCESS;
}

/* Returns whether a line of the file was an event of this set; 'code' is then the answer. */
static int next_event(EventSet *set, FILE *file, Event *event, int *code)
{
    char line[128];
    fseek(file, set->read, SEEK_SET);
    while (fgets(line, sizeof line, file) && strchr(line, '\n')) {
        u32 index;
        u64 data;
        set->read = ftell(file);
        if (sscanf(line, "error %d", code) == 1)
            return 1;
        if (sscanf(line, "xid %u %llu", &index, &data) != 2)
            continue;
        for (u32 i = 0; i < set->count; i++) {
            if (set->gpus[i]->index == index) {
                *event = (Event){ set->gpus[i], EVENT_XID, data, NO_INSTANCE, NO_INSTANCE };
                *code = SUCCESS;
                return 1;
            }
        }
    }
    return 0;
}

API int nvmlEventSetWait_v2(EventSet *set, Event *event, u32 milliseconds)
{
    ENTER;
    const struct timespec pause = { 0, EVENT_PAUSE_MS * 1000000L };
    for (u32 waited = 0;; waited += EVENT_PAUSE_MS) {
        FILE *file = events();
        if (file) {
            int code, found = next_event(set, file, event, &code);
            fclose(file);
            if (found)
                return code;
        }
        if (waited >= milliseconds)
            return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

/* ---- asked by name, and answered that they are not there; a name that is missing would end the process ---- */

#define UNSUPPORTED(name) API int name(void) { return NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetTopologyCommonAncestor)
UNSUPPORTED(nvmlDeviceGetNvLinkState)
UNSUPPORTED(nvmlDeviceGetComputeRunningProcesses_v3)
UNSUPPORTED(nvmlDeviceGetProcessUtilization)
