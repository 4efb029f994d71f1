use gangway_sys as sys;
use std::ffi::CStr;
use std::fmt;

/// An element type: DLPack's code, bits and lanes as one word. Open: any such word can be moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType(pub i32);

#[allow(missing_docs)]
impl DType {
    /// In options: the default.
    pub const NONE: DType = DType(sys::GW_DTYPE_NONE);
    pub const I8: DType = DType(sys::GW_I8);
    pub const I16: DType = DType(sys::GW_I16);
    pub const I32: DType = DType(sys::GW_I32);
    pub const I64: DType = DType(sys::GW_I64);
    pub const U8: DType = DType(sys::GW_U8);
    pub const U16: DType = DType(sys::GW_U16);
    pub const U32: DType = DType(sys::GW_U32);
    pub const U64: DType = DType(sys::GW_U64);
    pub const F16: DType = DType(sys::GW_F16);
    pub const F32: DType = DType(sys::GW_F32);
    pub const F64: DType = DType(sys::GW_F64);
    pub const BF16: DType = DType(sys::GW_BF16);
    pub const C64: DType = DType(sys::GW_C64);
    pub const C128: DType = DType(sys::GW_C128);
    pub const BOOL: DType = DType(sys::GW_BOOL);
    pub const F8_E4M3: DType = DType(sys::GW_F8_E4M3);
    pub const F8_E5M2: DType = DType(sys::GW_F8_E5M2);

    /// Bytes of one element; 0 for a word that cannot be moved.
    pub fn bytes(self) -> usize {
        unsafe { sys::gw_dtype_bytes(self.0) }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Static text.
        f.write_str(&unsafe { CStr::from_ptr(sys::gw_dtype_name(self.0)) }.to_string_lossy())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A type whose values can be moved between ranks.
///
/// # Safety
/// Every pattern of bits is a value, there is no padding, and the layout is what `DTYPE` says.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($kind:ty => $word:ident),* $(,)?) => { $(unsafe impl Element for $kind { const DTYPE: DType = DType::$word; })* };
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
          f32 => F32, f64 => F64, F16 => F16, Bf16 => BF16, Bool => BOOL, Complex<f32> => C64, Complex<f64> => C128);

#[cfg(feature = "half")]
elements!(::half::f16 => F16, ::half::bf16 => BF16);

/// The bits of a half-precision number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The bits of a bfloat16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl From<f32> for Bf16 {
    /// Rounds to nearest, ties to even.
    fn from(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(((bits as u64 + 0x7fff + ((bits as u64 >> 16) & 1)) >> 16) as u16)
    }
}

impl From<Bf16> for f32 {
    fn from(value: Bf16) -> f32 {
        f32::from_bits((value.0 as u32) << 16)
    }
}

/// A truth value as the library moves it: one byte, 0 is false. (Not `bool`: a peer could send another byte.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(value as u8)
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.0 != 0
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Complex<T> {
    pub re: T,
    pub im: T,
}
