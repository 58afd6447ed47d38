// Aligned memory whose total size the runtime can report. It is allocated by operator new, like all memory of the core,
// so a test that replaces this operator sees every allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace clearhead {

// Total size of all existing buffers in bytes.
inline std::atomic<size_t>& allocated_bytes() {
    static std::atomic<size_t> bytes{0};
    return bytes;
}

enum class Content { zero, anything };

// A fixed-size array of numbers, initialized to zero by default. From 2 MiB on it requests huge pages: weights are read
// from end to end at every step, and each page of 4 KiB would cause a TLB miss.
template <typename T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t count, Content content = Content::zero) : count_(count) {
        if (!count) return;
        if (count > (SIZE_MAX >> 1) / sizeof(T)) throw std::bad_alloc();
        const size_t huge = size_t{2} << 20, alignment = count * sizeof(T) >= huge ? huge : 64;
        bytes_ = (count * sizeof(T) + alignment - 1) / alignment * alignment;
        alignment_ = std::align_val_t{alignment};
        data_ = static_cast<T*>(::operator new(bytes_, alignment_));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        if (alignment == huge) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
        if (content == Content::zero) std::memset(static_cast<void*>(data_), 0, bytes_);
        allocated_bytes() += bytes_;
    }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (!data_) return;
        allocated_bytes() -= bytes_;
        ::operator delete(data_, alignment_);
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }
    // Grows to at least `count` elements; the content is lost if the buffer has to grow.
    void reserve(size_t count) {
        if (count <= count_) return;
        *this = Buffer();  // freed first, so that both need not fit into memory together
        *this = Buffer(count);
    }

  private:
    void swap(Buffer& other) {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        std::swap(bytes_, other.bytes_);
        std::swap(alignment_, other.alignment_);
    }
    T* data_ = nullptr;
    size_t count_ = 0, bytes_ = 0;
    std::align_val_t alignment_{64};
};

}  // namespace clearhead
